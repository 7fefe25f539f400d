"""The key index after a kill and after a power cut, at every place of its writing.

In: an index on files in memory, with the log of their operations. Out: for crashes after each
operation, an index that is set back to its mark, agrees with the model, and goes on with a log that
continues otherwise than the one before the crash, because what was not synced of it is lost.
"""

from random import Random
from typing import NamedTuple

import pytest

from orbitmq.store.key_index import IndexState
from tests.store.keyed import INDEX, Keyed, Model, feed, flush, key_index, random_messages
from tests.world.crash_images import nothing, some
from tests.world.memory_files import MemoryFiles

SHAPES = [(200, 40), (7, 25), (3_000, 1_000)]


class Saved(NamedTuple):
    """A mark: true after so many operations, for so many messages."""

    op_count: int
    message_count: int
    state: IndexState


class History(NamedTuple):
    """A run: its messages and marks, as the kernel has them and as they are synced."""

    messages: list[Keyed]
    written: list[Saved]
    synced: list[Saved]


def run(files: MemoryFiles, shape: tuple[int, int], chance: Random) -> History:
    """File messages in several jobs; some are synced to the end, as a thorough flush is."""
    index = key_index(files, *shape)
    history = History(random_messages(chance, 60), [], [])
    start = Saved(0, 0, index.state())
    history.written.append(start)
    history.synced.append(start)
    at = 0
    while at < len(history.messages):
        more = chance.randrange(5, 20)
        feed(index, history.messages[at : at + more])
        at = min(at + more, len(history.messages))
        job, state = index.freeze(), index.state()
        if job is not None:
            job.write_entries()
            job.sync()
            job.write_slots()
        history.written.append(Saved(len(files.ops), at, state))
        if chance.random() < 0.4:
            index.sync()
            history.synced.append(Saved(len(files.ops), at, state))
        if job is not None:
            index.finish(job)
    return history


def come_back(
    files: MemoryFiles, shape: tuple[int, int], saved: Saved, messages: list[Keyed]
) -> None:
    """Go back to a mark and on with other messages; crash once more and do it again."""
    index = key_index(files, *shape)
    index.restore(saved.state)
    assert index.bad_files() == []
    model = Model(messages[: saved.message_count])
    model.check(index)
    end = messages[saved.message_count - 1][1] + 500 if saved.message_count else 0
    others = random_messages(Random(saved.op_count), 30, end)
    feed(index, others)
    job = index.freeze()
    if job is not None:
        job.write_entries()
        job.sync()
    # Cut off again, before the slots: the mark is still the old one.
    again = key_index(files.kill_image(len(files.ops)), *shape)
    again.restore(saved.state)
    assert again.bad_files() == []
    model.check(again)
    feed(again, others)
    model.add(others)
    flush(again)
    model.check(again)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(2))
def test_after_a_kill_at_any_place_the_written_mark_holds(
    shape: tuple[int, int], seed: int
) -> None:
    files = MemoryFiles(INDEX)
    history = run(files, shape, Random(seed))
    for upto in range(len(files.ops) + 1):
        saved = [mark for mark in history.written if mark.op_count <= upto][-1]
        come_back(files.kill_image(upto), shape, saved, history.messages)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(2))
def test_after_a_power_cut_at_any_place_the_synced_mark_holds(
    shape: tuple[int, int], seed: int
) -> None:
    files = MemoryFiles(INDEX)
    history = run(files, shape, Random(100 + seed))
    for upto in range(len(files.ops) + 1):
        saved = [mark for mark in history.synced if mark.op_count <= upto][-1]
        for choose in (nothing(), some(upto), some(1_000 + upto)):
            come_back(files.image(upto, choose), shape, saved, history.messages)


def test_setting_back_twice_changes_nothing() -> None:
    files = MemoryFiles(INDEX)
    history = run(files, SHAPES[0], Random(5))
    saved = history.synced[len(history.synced) // 2]
    key_index(files, *SHAPES[0]).restore(saved.state)
    files.forget_ops()
    key_index(files, *SHAPES[0]).restore(saved.state)
    assert files.ops == []
