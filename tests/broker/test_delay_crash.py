"""Delayed messages over crashes: none that the log still has is lost, none comes twice.

Method: a broker's delay levels run on files in memory. The run is cut after many of its operations,
by a kill (everything that was written stays) and by a power cut (any part of what was not synced
stays). Each image is opened by a broker of its own, everything in it is delivered, and the schedule
topic is compared with the topic it delivers to. The same is done with a broker that was cut off
while it went on from such an image.
"""

from collections import Counter
from collections.abc import Callable

import pytest

from orbitmq.world.net import run
from tests.broker.delaying import ROOT, Site, site
from tests.store.driven import HandClock
from tests.store.opened import BOOT
from tests.world.crash_images import everything, nothing, some
from tests.world.memory_files import MemoryFiles

NEXT_BOOT = b"after power cut!"
IMAGES = 60

Likeness = Counter[tuple[bytes, str]]


def unique(name: str) -> str:
    return f"UNIQ_KEY\x01{name}\x02TAGS\x01TagA"


def alike(_name: str) -> str:
    return "TAGS\x01TagA"


async def workload(at: Site, properties: Callable[[str], str]) -> None:
    """Messages of three levels among others; delivered, synced and saved at different moments."""
    for step in range(24):
        name = f"{step:02}" if properties is unique else "same"
        at.send(name, 1 + step % 3, properties=properties(name))
        at.send_plain(f"plain {step}")
        await at.at(400)
        if step % 5 == 2:
            at.sync()
        if step % 7 == 3:
            await at.save()
    await at.at(3_000)


async def recorded(properties: Callable[[str], str]) -> MemoryFiles:
    files = MemoryFiles(ROOT)
    async with site(files, HandClock()) as at:
        await at.until_waiting(0)
        files.forget_ops()
        await workload(at, properties)
    return files


async def judge(image: MemoryFiles, boot_id: bytes, what: str) -> MemoryFiles:
    """Open what a crash left, deliver everything and compare; gives the files, with operations."""
    clock = HandClock()
    clock.now_ms += 1_000_000
    async with site(image, clock, boot_id=boot_id) as at:
        image.forget_ops()
        await at.until_waiting(0)
        scheduled, delivered = at.scheduled(), at.delivered()
    twice = delivered - scheduled
    assert not scheduled - delivered, f"{what}: lost {scheduled - delivered}"
    if boot_id == BOOT:
        assert not twice, f"{what}: twice {twice}"
    else:  # a power cut may have damaged the message in the schedule topic and left its copy
        assert not any(scheduled[key] for key in twice), f"{what}: twice {twice}"
    return image


def places(count: int, images: int = IMAGES) -> list[int]:
    """Some of the places at which a run can be cut, the last one included."""
    return sorted({round(number * count / images) for number in range(images + 1)})


@pytest.mark.parametrize("properties", [unique, alike])
def test_after_a_kill_at_any_moment_every_delayed_message_comes_once(
    properties: Callable[[str], str],
) -> None:
    async def inner() -> None:
        files = await recorded(properties)
        for upto in places(len(files.ops)):
            await judge(files.kill_image(upto), BOOT, f"kill after {upto}")

    run(inner())


def test_after_a_power_cut_at_any_moment_what_the_log_still_has_comes_once() -> None:
    async def inner() -> None:
        files = await recorded(unique)
        for upto in range(len(files.ops) + 1):
            for choose in (nothing(), everything(), some(upto))[: 3 if upto % 8 == 0 else 1]:
                await judge(files.image(upto, choose), NEXT_BOOT, f"power cut after {upto}")

    run(inner())


def test_a_kill_while_going_on_after_a_kill_delivers_nothing_twice() -> None:
    async def inner() -> None:
        files = await recorded(unique)
        for upto in places(len(files.ops), 8)[1:]:
            second = await judge(files.kill_image(upto), BOOT, f"kill after {upto}")
            for again in places(len(second.ops), 6):
                image = second.kill_image(again)
                await judge(image, BOOT, f"kill after {upto} and {again}")

    run(inner())


def test_a_file_that_was_saved_long_ago_is_made_up_for_by_the_log() -> None:
    """Everything is delivered, the file still says that nothing is."""

    async def inner() -> None:
        files, clock = MemoryFiles(ROOT), HandClock()
        async with site(files, clock) as at:
            await at.until_waiting(0)
            begun = files.contents()[ROOT / "config" / "delayOffset.json"]
            for step in range(40):
                at.send(f"{step}", 1 + step % 3)
            await at.until_waiting(40)
            await at.at(60_000)
            await at.until_waiting(0)
            assert len(at.bodies()) == 40
        assert begun == b'{"deliveredLogOffset":0,"offsetTable":{}}'
        files.put(ROOT / "config" / "delayOffset.json", begun)
        await judge(files, BOOT, "an old file")

    run(inner())


def test_a_copy_that_a_client_made_itself_takes_nothing_from_those_that_wait() -> None:
    """Symptom: who forwards a message with all its properties makes something like a copy."""

    async def inner() -> None:
        files, clock = MemoryFiles(ROOT), HandClock()
        async with site(files, clock) as at:
            await at.until_waiting(0)
            at.send("a", 1)
            await at.turn()
            await at.at(1_000)
            (copy,) = at.records()
            at.send("b", 1)
            at.forward(copy)
            at.forward(copy, add="x\x01y")
            await at.turn()
            image = files.kill_image(len(files.ops))
        clock.now_ms += 60_000
        async with site(image, clock) as at:
            await at.until_waiting(0)
            assert sorted(at.bodies()) == [b"a", b"a", b"a", b"b"]

    run(inner())
