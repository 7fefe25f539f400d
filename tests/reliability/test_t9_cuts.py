"""T9, cut at every byte: an exchange is cut off after each of its bytes, in both directions.

Method: a broker of its own; workers run one exchange after the other, each cut at another byte. In
the end every queue is read whole. What was acknowledged is there once, at the place that was
answered; what never left whole is not there; what nobody knows is there once or not at all. No held
pull, owed answer, connection or held byte is left at the broker. `make nightly-torture` does
it five times.
"""

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.names import retry_topic
from orbitmq.wire.record import Record, scan_records
from tests.behaviour.requests import pull_request, send_request
from tests.reliability.cutting import Cut, Link, Mode
from tests.reliability.exchange import Exchange, History
from tests.reliability.processes import BrokerProcess, broker_process, wait_until

IS_LONG = os.environ.get("ORBITMQ_TORTURE") == "long"
ROUNDS = 5 if IS_LONG else 1
SAMPLES = 400 if IS_LONG else 40
"""Of each other kind of cut, in each direction."""
WORKERS = 8
SEED = int(os.environ.get("ORBITMQ_SEED") or random.SystemRandom().randrange(1 << 32))
pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def told_seed() -> None:
    """Say how to repeat this run; pytest shows it with a failure."""
    print(f"repeat it with ORBITMQ_SEED={SEED}")


class Worker:
    """Runs exchanges one after the other, and keeps their history."""

    def __init__(self, address: str, number: int) -> None:
        self.history = History()
        self.topic, self.group = f"T9_{number}", f"T9_G_{number}"
        self._address = address
        self._number = number

    async def run(self, cuts: list[Cut]) -> None:
        """Run one exchange per cut."""
        direct = await Link.open(self._address)
        try:
            for queue_id in (0, 1):  # the topic and its queues are there before anything is cut
                made = await direct.ask(send_request(self.topic, b"first", e=queue_id))
                assert made.code == 0, made.remark
            for number, cut in enumerate(cuts):
                link = await Link.open(self._address, cut)
                await Exchange(link, self._number, number, self.history).run()
                await link.close()
                await self._check_commit(direct)
        finally:
            await direct.close()

    async def _check_commit(self, direct: Link) -> None:
        """P6: what was committed stays; what was asked for may have been done."""
        history = self.history
        fields = {"consumerGroup": self.group, "topic": self.topic, "queueId": "0"}
        answer = await direct.ask(Command(RequestCode.QUERY_CONSUMER_OFFSET, fields=fields))
        assert answer.code == 0, answer.remark
        seen = int(answer.fields["offset"])
        assert history.committed_least <= seen <= history.committed_most
        history.committed_least = seen

    async def audit(self) -> None:
        """Read all queues and compare them with the history."""
        direct = await Link.open(self._address)
        history = self.history
        found: dict[str, list[tuple[int, int]]] = {}
        for queue_id in (0, 1):
            records = await read_queue(direct, self.topic, queue_id)
            assert [record.queue_offset for record in records] == list(range(len(records)))
            for record in records[1:]:
                place = (queue_id, record.queue_offset)
                found.setdefault(record.body.decode(), []).append(place)
        lost = {one: place for one, place in history.ok.items() if found.get(one) != [place]}
        assert lost == {}, "acknowledged: there once, where the answer said"
        assert [one for one in history.unsent if one in found] == []
        assert [one for one in history.unknown if len(found.get(one, [])) > 1] == []
        assert set(found) <= history.ok.keys() | history.unknown
        await self._audit_backs(direct)
        await direct.close()

    async def _audit_backs(self, direct: Link) -> None:
        history = self.history
        topic = retry_topic(self.group)
        deadline_s = time.monotonic() + 10
        while True:  # they are delayed by a second
            records = await read_queue(direct, topic, 0)
            counts = Counter(record.body.decode() for record in records)
            if history.backs_ok <= counts.keys() or time.monotonic() > deadline_s:
                break
            await asyncio.sleep(0.05)
        assert history.backs_ok <= counts.keys()
        assert set(counts) <= history.backs_ok | history.backs_unknown
        assert set(counts.values()) <= {1}, "given back once, there once"


async def read_queue(link: Link, topic: str, queue_id: int) -> list[Record]:
    """Pull a queue from its beginning to its end."""
    records: list[Record] = []
    while True:
        request = pull_request(topic, "T9_AUDIT", len(records), queueId=queue_id, maxMsgNums=1000)
        answer = await link.ask(request)
        if answer.code != 0:
            assert answer.code == 19, answer.remark
            return records
        records += scan_records(answer.body)


async def measure(address: str) -> tuple[int, int]:
    """Run the exchange once without a cut; return how many bytes go out and come in."""
    worker = Worker(address, 99)
    direct = await Link.open(address)
    for queue_id in (0, 1):
        await direct.ask(send_request(worker.topic, b"first", e=queue_id))
    link = await Link.open(address)
    await Exchange(link, 99, 0, worker.history).run()
    await link.close()
    await direct.close()
    assert worker.history.finished == 1
    return link.sent, link.received


def planned(out_size: int, in_size: int, chance: random.Random) -> list[Cut]:
    """Return every cut of a run, in a random order."""
    cuts = [Cut("out", passed) for passed in range(out_size + 1)] * ROUNDS
    cuts += [Cut("in", passed) for passed in range(in_size + 1)] * ROUNDS
    others: list[Mode] = ["reset", "stall"]
    for mode in others:
        cuts += [Cut("out", chance.randrange(out_size), mode) for _ in range(SAMPLES)]
        cuts += [Cut("in", chance.randrange(in_size), mode) for _ in range(SAMPLES)]
    chance.shuffle(cuts)
    return cuts


def assert_nothing_left(broker: BrokerProcess) -> None:
    """No slot, held pull, connection or byte is left of all those clients."""
    names = ["net_connections", "net_laters", "net_held_bytes", "broker_held_pulls"]
    names += ["broker_client_connections", "broker_client_members"]

    def left() -> dict[str, int]:
        figures = {name: broker.metric(f"orbitmq_{name}") for name in names}
        return {name: value for name, value in figures.items() if value}

    wait_until(lambda: not left())
    assert broker.metric("orbitmq_handler_errors_total") == 0
    assert broker.odd_log_lines() == []


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(1_800 if IS_LONG else 120)
def test_whatever_byte_an_exchange_is_cut_at_the_outcome_is_the_truth(tmp_path: Path) -> None:
    chance, start_s = random.Random(SEED), time.monotonic()
    workers: list[Worker] = []

    async def cut_all(address: str) -> int:
        cuts = planned(*await measure(address), chance)
        workers.extend(Worker(address, number) for number in range(WORKERS))
        shares = [cuts[number::WORKERS] for number in range(WORKERS)]
        await asyncio.gather(*map(Worker.run, workers, shares))
        return len(cuts)

    async def audit() -> None:
        for worker in workers:
            await worker.audit()

    with broker_process(tmp_path / "data") as broker:
        count = asyncio.run(cut_all(broker.address))
        took_s = time.monotonic() - start_s
        assert_nothing_left(broker)
        asyncio.run(audit())
    histories = [worker.history for worker in workers]
    acked = sum(len(history.ok) for history in histories)
    unknown = sum(len(history.unknown) for history in histories)
    finished = sum(history.finished for history in histories)
    print(
        f"T9 cuts: {count} exchanges ({finished} finished) in {took_s:.1f} s, {acked} messages"
        f" acknowledged, {unknown} unknown, seed {SEED}"
    )
    assert acked > count
    assert unknown > 10


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(600 if IS_LONG else 60)
def test_a_piece_that_comes_late_changes_nothing(tmp_path: Path) -> None:
    """Wherever an exchange halts for a while, it ends as if it had not."""
    chance, workers = random.Random(SEED), list[Worker]()

    async def delay_all(address: str) -> None:
        out_size, in_size = await measure(address)
        cuts = [Cut("out", chance.randrange(out_size), "delay") for _ in range(2 * SAMPLES)]
        cuts += [Cut("in", chance.randrange(in_size), "delay") for _ in range(2 * SAMPLES)]
        workers.extend(Worker(address, number) for number in range(WORKERS))
        shares = [cuts[number::WORKERS] for number in range(WORKERS)]
        await asyncio.gather(*map(Worker.run, workers, shares))
        for worker in workers:
            await worker.audit()

    with broker_process(tmp_path / "data") as broker:
        asyncio.run(delay_all(broker.address))
        assert_nothing_left(broker)
    histories = [worker.history for worker in workers]
    assert sum(history.finished for history in histories) == 4 * SAMPLES
    assert sum(len(history.unknown) + len(history.unsent) for history in histories) == 0


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(600 if IS_LONG else 60)
def test_a_piece_that_comes_twice_costs_its_own_connection_only(tmp_path: Path) -> None:
    """What follows the piece is garbage: it may be stored as sent, but nothing else changes."""
    chance = random.Random(SEED)

    async def garble(address: str) -> None:
        out_size, _ = await measure(address)
        cuts = [Cut("out", chance.randrange(out_size), "repeat") for _ in range(4 * SAMPLES)]
        worker = Worker(address, 0)
        await worker.run(cuts)
        direct = await Link.open(address)
        for one, (queue_id, queue_offset) in worker.history.ok.items():
            request = pull_request(worker.topic, "G", queue_offset, queueId=queue_id, maxMsgNums=1)
            (record,) = scan_records((await direct.ask(request)).body)
            assert (record.queue_offset, record.body) == (queue_offset, one.encode())
        await direct.close()
        assert len(worker.history.ok) > SAMPLES

    with broker_process(tmp_path / "data") as broker:
        asyncio.run(garble(broker.address))
        assert_nothing_left(broker)
