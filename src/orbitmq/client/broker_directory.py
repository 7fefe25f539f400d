"""Brokers that are asked where topics are, for those who know no name server.

In: addresses of brokers; the questions that a client has for name servers. Out: the answers that a
name server would give, put together from what the brokers say of themselves.

Rules:
1. It takes the place of `NameServers`: routes (105), brokers (106) and topic names (206).
2. Every broker must answer: a route without the queues of a silent one would look whole.
3. A broker is reached where it was asked, whatever address it would tell a name server.
"""

import asyncio

from orbitmq.client.name_servers import Ask
from orbitmq.client.remote import failure_of, request
from orbitmq.config.properties import parse_properties
from orbitmq.errors import SettingError
from orbitmq.wire.bodies_namesrv import (
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    TopicRoute,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import read_json, write_json
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_namesrv import GetRoute
from orbitmq.world.net import read_addresses


class BrokerDirectory:
    """The brokers of one client that has no name servers."""

    is_looked_up = False

    def __init__(self, brokers: str, ask: Ask) -> None:
        self.addresses = read_addresses(brokers)
        self.is_closed = False
        self._ask = ask

    async def begin(self) -> None:
        """Have addresses; raises SettingError when there are none."""
        if not self.addresses:
            raise SettingError("no broker is known: give brokers='host:10911'")

    async def look_up(self) -> None:
        """Do nothing: the list is fixed."""

    async def call(self, asked: Command, timeout_s: float) -> Command:
        """Return what a name server would answer; raises what the first silent broker does."""
        if asked.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return await self._route(asked, timeout_s)
        if asked.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return await self._cluster(asked, timeout_s)
        if asked.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            return await self._topics(asked, timeout_s)
        remark = "only a name server can tell; give namesrv='host:9876' instead of brokers"
        return reply_to(asked, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)

    async def _route(self, asked: Command, timeout_s: float) -> Command:
        topic = read_header(GetRoute, asked.fields).topic
        configs = await self._configs(timeout_s)
        found = [(address, table[topic]) for address, table in configs.items() if topic in table]
        if not found:
            remark = f"no broker at {', '.join(self.addresses)} has topic {topic}"
            return reply_to(asked, ResponseCode.TOPIC_NOT_EXIST, remark)
        brokers = await self._brokers([address for address, _ in found], timeout_s)
        queues = {
            broker.broker_name: _queues(broker.broker_name, config)
            for broker, (_, config) in zip(brokers, found, strict=True)
        }
        route = TopicRoute(broker_datas=_merged(brokers), queue_datas=list(queues.values()))
        return reply_to(asked, body=write_json(route, standard=True))

    async def _cluster(self, asked: Command, timeout_s: float) -> Command:
        brokers = _merged(await self._brokers(self.addresses, timeout_s))
        clusters: dict[str, list[str]] = {}
        for broker in brokers:
            clusters.setdefault(broker.cluster, []).append(broker.broker_name)
        info = ClusterInfo(
            broker_addr_table={broker.broker_name: broker for broker in brokers},
            cluster_addr_table=clusters,
        )
        return reply_to(asked, body=write_json(info, standard=True))

    async def _topics(self, asked: Command, timeout_s: float) -> Command:
        configs = await self._configs(timeout_s)
        names = sorted({topic for table in configs.values() for topic in table})
        return reply_to(asked, body=write_json(TopicList(topic_list=names), standard=True))

    async def _configs(self, timeout_s: float) -> dict[str, dict[str, TopicConfig]]:
        """Return the topics of each broker."""

        async def one(address: str) -> dict[str, TopicConfig]:
            body = await self._body(address, RequestCode.GET_ALL_TOPIC_CONFIG, timeout_s)
            return read_json(body, TopicConfigTable).topic_config_table

        found = await asyncio.gather(*map(one, self.addresses))
        return dict(zip(self.addresses, found, strict=True))

    async def _brokers(self, addresses: list[str], timeout_s: float) -> list[BrokerData]:
        """Return what brokers are, one for each address."""

        async def one(address: str) -> BrokerData:
            body = await self._body(address, RequestCode.GET_BROKER_CONFIG, timeout_s)
            settings = parse_properties(body)
            return BrokerData(
                cluster=settings.get("brokerClusterName", ""),
                broker_name=settings.get("brokerName", ""),
                broker_addrs={int(settings.get("brokerId", "0")): address},
            )

        return list(await asyncio.gather(*map(one, addresses)))

    async def _body(self, address: str, code: RequestCode, timeout_s: float) -> bytes:
        answer = await self._ask(address, request(code), timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise failure_of(answer)
        return answer.body


def _queues(broker_name: str, config: TopicConfig) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        read_queue_count=config.read_queue_count,
        write_queue_count=config.write_queue_count,
        perm=config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )


def _merged(brokers: list[BrokerData]) -> list[BrokerData]:
    """Return one entry for each name: its members may have been given one by one."""
    members: dict[tuple[str, str], dict[int, str]] = {}
    for broker in brokers:
        members.setdefault((broker.cluster, broker.broker_name), {}).update(broker.broker_addrs)
    return [
        BrokerData(cluster=cluster, broker_name=name, broker_addrs=addresses)
        for (cluster, name), addresses in sorted(members.items())
    ]
