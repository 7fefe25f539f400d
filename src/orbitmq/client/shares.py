"""A member's share of a topic's queues, as things are now.

In: a topic's route, the group's members as a broker lists them, the group's strategy. Out: all
queues of the topic and those that are ours.

Rules:
1. Any broker of the topic knows the members; a random one is asked, the others when it fails.
2. A member that is not in the list has no share yet: it introduces itself by a heartbeat and asks
   again later. It is no reason to give away what one has.
3. In a broadcasting group every member has all queues.
"""

import logging
from collections.abc import Iterable

import msgspec

from orbitmq.client.instance import Instance
from orbitmq.client.remote import request
from orbitmq.client.routes import MASTER_ID, Route
from orbitmq.client.strategies import AllocateStrategy
from orbitmq.errors import BrokerNotFound, MQError, RequestFailed
from orbitmq.wire.bodies_client import ConsumerList, MessageQueue
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.fastjson import read_json
from orbitmq.wire.headers_client import GetConsumerList

log = logging.getLogger(__name__)

MEMBERS_TIMEOUT_S = 3.0


class Share(msgspec.Struct, frozen=True):
    """A topic's queues, and which of them are ours."""

    queues: list[MessageQueue]
    mine: list[MessageQueue]


class Shares:
    """Finds the shares of one member. `strategy` None: a broadcasting group."""

    def __init__(self, instance: Instance, group: str, strategy: AllocateStrategy | None) -> None:
        self._instance = instance
        self._group = group
        self._strategy = strategy

    async def find(self, topic: str) -> Share | None:
        """Return our share of a topic; None while we are not in the list of members (rule 2).

        Raises RouteNotFound while the topic does not exist, another MQError when nobody answers.
        """
        route = await self._instance.routes.find(topic)
        queues = sorted(route.subscribe_queues)
        if self._strategy is None or not queues:
            return Share(queues, queues)
        members = sorted(await self._members(route))
        client_id = self._instance.client_id
        if client_id not in members:
            log.info("the members of group %s do not include us; telling brokers", self._group)
            await self._instance.heartbeat()
            return None
        return Share(queues, self._strategy.allocate(self._group, client_id, queues, members))

    async def left(self, topic: str, had: Iterable[MessageQueue]) -> Share:
        """Return what is to be said of a topic that is not wanted any more: none of it is ours."""
        try:
            queues = (await self._instance.routes.find(topic)).subscribe_queues
        except MQError:  # nobody knows it any more
            return Share(sorted(had), [])
        return Share(sorted(queues), [])

    async def _members(self, route: Route) -> list[str]:
        brokers = [data.broker_addrs for data in route.data.broker_datas if data.broker_addrs]
        if not brokers:
            raise BrokerNotFound("any", route.topic)
        first = self._instance.chance.below(len(brokers))
        asked = request(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerList(consumer_group=self._group)
        )
        failure: MQError | None = None
        for addresses in brokers[first:] + brokers[:first]:
            address = addresses.get(MASTER_ID) or addresses[min(addresses)]
            try:
                answer = await self._instance.remote.ask(
                    address, asked, timeout_s=MEMBERS_TIMEOUT_S
                )
                return read_json(answer.body, ConsumerList).consumer_id_list
            except RequestFailed as error:
                if error.code == ResponseCode.SYSTEM_ERROR:  # "no consumer for this group"
                    return []
                failure = error
            except MQError as error:
                failure = error
        raise failure or BrokerNotFound("any", route.topic)
