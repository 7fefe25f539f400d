"""The original's tables: read as it wrote them, kept, and written in its form."""

import asyncio
import json
from pathlib import Path

from orbitmq.broker.delay_offsets import DelayOffsets
from orbitmq.broker.filters import DEAD_MS_MAX, FilterTable
from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.world.clock import SystemClock
from orbitmq.world.files import SystemFiles
from orbitmq.world.net import run
from tests.broker.running import begin
from tests.golden.store import unpack_store
from tests.store.opened import open_store, stage

DELAYS_MS = (1_000,) * 18
DEAD_MS = 1_794_770_342_101


class At(SystemClock):
    """A clock that stands at a moment."""

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms

    def wall_ms(self) -> int:
        return self._wall_ms


def golden(tmp_path: Path) -> Path:
    unpack_store("store-clean", tmp_path)
    return tmp_path


def test_the_originals_filters_are_read_and_written_alike(tmp_path: Path) -> None:
    config = golden(tmp_path) / "config"
    before = json.loads((config / "consumerFilter.json").read_bytes())
    table = FilterTable(SystemFiles(), config, At(DEAD_MS + 1))
    found = table.find("TopicA", "CGS")
    assert found is not None
    assert found.expression == "a is not null and a between 1 and 2"
    assert found.bloom_bits is not None
    assert (found.bloom_bits.bit_num, found.bloom_bits.bit_pos) == (112, (43, 110, 103))
    table.file.mark()
    save = table.file.take()
    assert save is not None
    save()
    assert json.loads((config / "consumerFilter.json").read_bytes()) == before


def test_a_filter_whose_group_is_away_for_a_day_is_forgotten(tmp_path: Path) -> None:
    config = golden(tmp_path) / "config"
    table = FilterTable(SystemFiles(), config, At(DEAD_MS + DEAD_MS_MAX + 1))
    assert len(table) == 0
    assert table.file.take() is not None, "the file is written without it"


def schedule_store(folder: Path, count: int) -> DelayOffsets:
    store = open_store(folder)
    for number in range(count):
        stage(store, 2, b"%d" % number, topic="SCHEDULE_TOPIC_XXXX")
    store.write_staged()
    return DelayOffsets(SystemFiles(), folder / "config", store, DELAYS_MS)


def test_offsets_of_delay_levels_outside_their_queue_are_moved_to_its_nearer_end(
    tmp_path: Path,
) -> None:
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "delayOffset.json"
    path.write_text('{\n\t"offsetTable":{3:99,1:7,2:0\n\t}\n}')
    delays = schedule_store(tmp_path, 5)
    assert [delays.find(level) for level in (1, 2, 3, 4)] == [0, 0, 5, 0]
    save = delays.file.take()
    assert save is not None
    save()
    assert path.read_bytes() == b'{"deliveredLogOffset":0,"offsetTable":{1:0,2:0,3:5}}'
    assert (path.parent / "delayOffset.json.bak").exists()


def test_delayed_messages_that_wait_are_counted(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable":{3:2}}')
    assert schedule_store(tmp_path, 5).waiting_count() == 3


def test_a_broker_on_the_originals_folder_keeps_its_tables(tmp_path: Path) -> None:
    root = golden(tmp_path)
    names = ("delayOffset.json", "topics.json", "subscriptionGroup.json", "consumerOffset.json")
    before = {name: (root / "config" / name).read_bytes() for name in names}

    async def inner() -> None:
        turn = Turn(asyncio.get_running_loop())
        running = await begin(root, turn, BrokerSettings(listen_port=0), SystemFiles())
        await running.stop()

    run(inner())
    after = {name: (root / "config" / name).read_bytes() for name in names}
    assert before["delayOffset.json"] == b'{\n\t"offsetTable":{1:1,3:1\n\t}\n}'
    assert after["delayOffset.json"].endswith(b',"offsetTable":{1:1,3:1}}')
    assert after["consumerOffset.json"] == before["consumerOffset.json"]
    assert b'"TopicFill"' in after["topics.json"]
    assert b'"CG1"' in after["subscriptionGroup.json"]
