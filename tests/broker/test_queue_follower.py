"""Followers of queues: several at once, from memory and from disk, and a refused write."""

import asyncio
from pathlib import Path

import pytest

from orbitmq.broker.progress import Progress
from orbitmq.broker.queue_follower import FollowedRecord, QueueFollower
from orbitmq.config import BrokerSettings
from orbitmq.core import Queue
from orbitmq.errors import DiskFull, StoreError
from orbitmq.net.turn import Turn
from orbitmq.world.net import run
from tests.behaviour.requests import send_request
from tests.broker.running import Running, running

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 20)
TOPIC = "Orders"
LIMIT_S = 10.0


class Reader:
    """An owner that reads whatever its follower has."""

    def __init__(self, site: Running, name: str, saved: int | None = None) -> None:
        self.bodies: list[bytes] = []
        self.outcomes: list[StoreError | None] = []
        self.lost = 0
        self._news = asyncio.Event()
        context = site.broker._context
        self.progress = Progress(saved, lambda: context.store.durable_offset)
        self.follower = QueueFollower(context, queue_of(site), name, self.progress, self)

    def note_news(self) -> None:
        self._news.set()

    def note_lost(self, count: int) -> None:
        self.lost += count

    def note_written(self, error: StoreError | None) -> None:
        self.outcomes.append(error)
        self._news.set()

    async def read(self, count: int) -> list[bytes]:
        """Read on until there are so many bodies in all."""
        async with asyncio.timeout(LIMIT_S):
            while len(self.bodies) < count:
                self._news.clear()
                record = self._next()
                if record is not None:
                    self.bodies.append(record.body)
                    self.follower.advance(record.queue_offset + 1)
                elif self.follower.entry() is None:
                    await self._news.wait()
        return self.bodies

    def _next(self) -> FollowedRecord | None:
        entry = self.follower.entry()
        return None if entry is None else self.follower.record(entry)

    async def ended_turns(self, count: int) -> list[StoreError | None]:
        """Wait until the owner was told of so many turns."""
        async with asyncio.timeout(LIMIT_S):
            while len(self.outcomes) < count:
                self._news.clear()
                await self._news.wait()
        return self.outcomes


def queue_of(site: Running) -> Queue:
    return site.broker._context.store.queue(TOPIC, 0)


async def send(site: Running, *numbers: int) -> list[bytes]:
    bodies = [b"%d" % number for number in numbers]
    for body in bodies:
        assert (await site.call(send_request(TOPIC, body))).code == 0
    return bodies


def test_two_followers_of_a_queue_read_it_each_from_its_own_position(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as site:
            old = await send(site, 0, 1, 2)
            all_of_it, behind_two = Reader(site, "one"), Reader(site, "other", 2)
            assert await all_of_it.read(3) == old
            assert await behind_two.read(1) == old[2:]
            waiting = asyncio.gather(all_of_it.read(5), behind_two.read(3))
            new = await send(site, 3, 4)
            assert list(await waiting) == [old + new, old[2:] + new]
            for reader in (all_of_it, behind_two):
                await reader.follower.stop()

    run(scenario())


def test_followers_read_from_disk_what_a_start_finds_and_go_on_in_memory(tmp_path: Path) -> None:
    async def scenario() -> None:
        turn = Turn(asyncio.get_running_loop())
        async with running(tmp_path, turn, SETTINGS) as site:
            old = await send(site, *range(40))
        async with running(tmp_path, turn, SETTINGS) as site:
            readers = [Reader(site, "one"), Reader(site, "other", 30)]
            assert queue_of(site).base_offset == 40, "none of it is in memory"
            new = await send(site, 40)
            assert await readers[0].read(41) == old + new
            assert await readers[1].read(11) == old[30:] + new
            assert [reader.lost for reader in readers] == [0, 0]
            for reader in readers:
                await reader.follower.stop()

    run(scenario())


def test_a_refused_write_sets_a_follower_back_to_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running(tmp_path, Turn(asyncio.get_running_loop()), SETTINGS) as site:
            bodies = await send(site, 0, 1)
            reader, store = Reader(site, "one"), site.broker._context.store
            await reader.read(1)
            assert await reader.ended_turns(1) == [None]
            assert reader.progress.written == 1

            def refuse() -> set[Queue]:
                raise DiskFull("no space left")

            with monkeypatch.context() as patch:
                patch.setattr(store, "write_staged", refuse)
                await reader.read(2)
                outcomes = await reader.ended_turns(2)
            assert isinstance(outcomes[1], DiskFull)
            assert (reader.progress.written, reader.follower.next_offset) == (1, 1)
            assert await reader.read(3) == [*bodies, bodies[1]]
            await reader.ended_turns(3)
            assert reader.progress.written == 2
            await reader.follower.stop()

    run(scenario())


def test_a_position_is_durable_when_the_log_is_up_to_its_records() -> None:
    progress = Progress(None, lambda: 0)
    assert progress.stage(1, 100), "the first step of a turn"
    assert not progress.stage(2, 200), "the same turn"
    progress.end_turn(is_written=True)
    progress.settle(199)
    assert (progress.written, progress.durable) == (2, None)
    progress.settle(200)
    assert progress.durable == 2
    progress.stage(3, 300)
    progress.end_turn(is_written=False)
    progress.settle(300)
    assert (progress.written, progress.durable) == (2, 2)
