"""Run an Admin for a test, and see that it leaves nothing behind."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, Unpack

from orbitmq.client.admin import Admin, AdminOptions
from orbitmq.errors import MQError
from tests.foreign.judged import System

T = TypeVar("T")
LOOK_S = 0.05
LIMIT_S = 10.0
BROKER = "broker-a"


def administer(
    system: System, act: Callable[[Admin], Awaitable[T]], **options: Unpack[AdminOptions]
) -> T:
    """Return what `act` gives with a running Admin; no task may be left of it."""

    async def main() -> T:
        async with Admin(system.namesrv, **options) as admin:
            found = await act(admin)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left
        return found

    return asyncio.run(main())


async def eventually(look: Callable[[], Awaitable[T]]) -> T:
    """What `look` gives once it neither fails nor gives nothing; nobody tells when it does."""
    end_s = asyncio.get_running_loop().time() + LIMIT_S
    while True:
        try:
            found = await look()
        except MQError:
            if asyncio.get_running_loop().time() > end_s:
                raise
        else:
            if found or asyncio.get_running_loop().time() > end_s:
                assert found
                return found
        await asyncio.sleep(LOOK_S)
