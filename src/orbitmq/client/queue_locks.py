"""Locks of queues at brokers: what makes an orderly consumer the only one of its group.

In: queues. Out: which of them this client holds now.

Rules:
1. A broker gives a queue to one client of a group and takes it back 60 s after the last renewal. We
   renew every RENEW_S and trust a lock for VALID_S only.
2. Unlocking never fails: a lock that was not given back expires.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable

from orbitmq.client.instance import Instance
from orbitmq.client.remote import request
from orbitmq.errors import MQError
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.bodies_consume import LockBatch, LockedQueues
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.fastjson import read_json, write_json

log = logging.getLogger(__name__)

RENEW_S = 20.0
VALID_S = 30.0
LOCK_TIMEOUT_S = 1.0


class QueueLocks:
    """The locks of one consumer."""

    def __init__(self, instance: Instance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def lock(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, bool]:
        """Take or renew locks; give for each queue whether it is ours, nothing where unknown."""
        answers = await asyncio.gather(
            *(self._ask_lock(each) for each in _by_broker(queues)), return_exceptions=True
        )
        found: dict[MessageQueue, bool] = {}
        for answer in answers:
            if isinstance(answer, MQError):
                log.info("queues of group %s cannot be locked for now: %s", self._group, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.update(answer)
        return found

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Release locks, as far as brokers answer."""
        tasks = [self._ask_unlock(each) for each in _by_broker(queues)]
        await asyncio.gather(*tasks)

    async def _ask_lock(self, queues: list[MessageQueue]) -> dict[MessageQueue, bool]:
        address = await self._instance.routes.master_address(queues[0])
        asked = request(RequestCode.LOCK_BATCH_MQ, body=self._body(queues))
        answer = await self._instance.remote.ask(address, asked, timeout_s=LOCK_TIMEOUT_S)
        held = set(read_json(answer.body, LockedQueues).queues)
        return {queue: queue in held for queue in queues}

    async def _ask_unlock(self, queues: list[MessageQueue]) -> None:
        try:
            address = await self._instance.routes.master_address(queues[0])
            asked = request(RequestCode.UNLOCK_BATCH_MQ, body=self._body(queues))
            await self._instance.remote.ask(address, asked, timeout_s=LOCK_TIMEOUT_S)
        except MQError as error:
            log.info("locks of group %s will expire by themselves: %s", self._group, error)

    def _body(self, queues: list[MessageQueue]) -> bytes:
        batch = LockBatch(
            client_id=self._instance.client_id, consumer_group=self._group, queues=queues
        )
        return write_json(batch, standard=True)


def _by_broker(queues: Iterable[MessageQueue]) -> list[list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return list(found.values())
