"""A store, a core and their figures, with a clock that the test moves."""

from pathlib import Path

from orbitmq.broker.counts import Counts
from orbitmq.broker.stats import BrokerStats
from orbitmq.broker.stats_windows import SAMPLE_S
from orbitmq.core import CoreState, Origin, Stamp, Topic, append
from orbitmq.store.opening import Outside
from orbitmq.store.options import StoreOptions
from orbitmq.store.store import Store
from orbitmq.world.clock import SystemClock
from orbitmq.world.files import SystemFiles

ORIGIN = Origin(b"\x7f\0\0\1\0\0\x12\x34", b"\x7f\0\0\1\0\0\x2a\x9f")
START_MS = 1_700_000_000_000


class Figures:
    """A store, a core and their figures, with a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        outside = Outside(SystemFiles(), SystemClock())
        self.store = Store(outside, folder, StoreOptions(log_file_size=1 << 20))
        self.core = CoreState(self.store.tail, "C", "R")
        self.core.groups.add("G")
        self.counts = Counts(self.core, self.store)
        self.stats = BrokerStats(self.counts, self.core, "C", 0.0)
        self.now_s = 0.0

    def put(self, topic: str, count: int, queue_id: int = 0) -> None:
        queue = self.store.queue(topic, queue_id)
        known = self.core.topics.get(topic)
        if known is None:
            known = self.core.topics[topic] = Topic(topic, 4, is_plain=True, is_readable=True)
        known.queues[queue_id] = queue
        for _ in range(count):
            append(self.store.tail, queue, ORIGIN, Stamp(0, 0, 1, 0, 0, 0), b"x" * 10, b"")
        self.store.write_staged()

    def sample(self, times: int = 1, *, is_forgetful: bool = False) -> None:
        for _ in range(times):
            self.now_s += SAMPLE_S
            now_ms = START_MS + int(self.now_s * 1000)
            for _ in self.stats.sampling(self.now_s, now_ms, is_forgetful=is_forgetful):
                pass

    def sums(self, name: str, key: str) -> tuple[int, int, int] | None:
        data = self.stats.view(name, key)
        if data is None:
            return None
        return data.stats_minute.sum, data.stats_hour.sum, data.stats_day.sum
