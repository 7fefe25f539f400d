"""Brokers and name servers themselves: how they are, their settings, cleaning up, key-value pairs.

In: names, settings. Out: figures, settings by name, or how many topics a change touched.

Rules:
1. What is changed at name servers is changed at all of them; what is read is read from one, but
   their settings from each.
2. Settings have the original's names; values are text.
"""

from collections.abc import Mapping

from orbitmq.client.admin_base import AdminBase, Target, check_cluster
from orbitmq.client.admin_results import BrokerRuntime, Figures, Window
from orbitmq.client.remote import request
from orbitmq.config import parse_properties, write_properties
from orbitmq.errors import LocalProtocolError, NotFound, RequestFailed
from orbitmq.wire.bodies_namesrv import KVTable
from orbitmq.wire.bodies_runtime import (
    BrokerStatsData,
    RuntimeInfo,
    ViewBrokerStats,
    WindowFigures,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.fastjson import read_json
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_namesrv import (
    AddWritePerm,
    AddWritePermAnswer,
    DeleteKv,
    GetKv,
    GetKvAnswer,
    ListKv,
    PutKv,
    WipeWritePerm,
    WipeWritePermAnswer,
)


class AdminServers(AdminBase):
    """The part of Admin about brokers and name servers."""

    # --- brokers ---

    async def broker_runtime(self, broker: str) -> BrokerRuntime:
        """Return how a broker is doing; `broker` is its name (then its master) or an address."""
        (target,) = await self._targets(None, broker)
        return await self._runtime_at(target)

    async def broker_runtimes(self, *, cluster: str | None = None) -> list[BrokerRuntime]:
        """Return how all brokers are doing, slaves included; those that do not answer are an error.

        >>> [(one.name, one.version) for one in await admin.broker_runtimes()]

        Raises NotFound for an unknown cluster.
        """
        clusters = await self.clusters()
        if cluster is not None:
            check_cluster(clusters, cluster)
        targets = [
            Target(known.name, entry.name, broker_id, address)
            for known in clusters
            if cluster in (None, known.name)
            for entry in known.brokers
            for broker_id, address in entry.addresses.items()
        ]
        return list((await self._at_each(targets, self._runtime_at)).values())

    async def _runtime_at(self, target: Target) -> BrokerRuntime:
        answer = await self._ask(target.address, request(RequestCode.GET_BROKER_RUNTIME_INFO))
        table = read_json(answer.body, RuntimeInfo).table
        put_now, put_today, put_yesterday = _counts(table, "msgPut")
        got_now, got_today, got_yesterday = _counts(table, "msgGet")
        transferred = table.get("getTransferredTps") or table.get("getTransferedTps", "")
        return BrokerRuntime(
            cluster=target.cluster,
            name=target.name,
            broker_id=target.broker_id,
            address=target.address,
            version=table.get("brokerVersionDesc", ""),
            boot_ms=_whole(table.get("bootTimestamp")),
            put_tps=_number(table.get("putTps", "").partition(" ")[0]),
            get_tps=_number(transferred.partition(" ")[0]),
            put_today=put_now - put_today,
            got_today=got_now - got_today,
            put_yesterday=put_today - put_yesterday,
            got_yesterday=got_today - got_yesterday,
            disk_ratio=_number(table.get("commitLogDiskRatio")),
            earliest_ms=max(0, _whole(table.get("earliestMessageTimeStamp"))),
            table=dict(sorted(table.items())),
        )

    async def broker_settings(self, broker: str) -> dict[str, str]:
        """Return a broker's settings in force, by the original's names."""
        (target,) = await self._targets(None, broker)
        answer = await self._ask(target.address, request(RequestCode.GET_BROKER_CONFIG))
        return dict(sorted(parse_properties(answer.body).items()))

    async def update_broker_settings(
        self, changes: Mapping[str, str], *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Change settings of one broker, or of every master of a cluster, for good.

        >>> await admin.update_broker_settings({"fileReservedTime": "48"}, broker="broker-a")

        Raises RequestFailed for what may not be changed while a broker runs.
        """
        body = write_properties(_checked(changes)).encode()

        async def change(target: Target) -> None:
            asked = request(RequestCode.UPDATE_BROKER_CONFIG, body=body)
            await self._ask(target.address, asked)

        await self._at_each(await self._targets(cluster, broker), change)

    async def figures(self, broker: str, name: str, key: str) -> Figures | None:
        """Return one of a broker's figures by name; None when nothing was counted under it.

        >>> await admin.figures("broker-a", "TOPIC_PUT_NUMS", "orders")
        """
        (target,) = await self._targets(None, broker)
        header = ViewBrokerStats(name=name, key=key)
        asked = request(RequestCode.VIEW_BROKER_STATS_DATA, header)
        try:
            answer = await self._ask(target.address, asked)
        except RequestFailed as error:
            if error.code != ResponseCode.SYSTEM_ERROR:
                raise
            return None
        data = read_json(answer.body, BrokerStatsData)
        return Figures(
            minute=_window(data.stats_minute),
            hour=_window(data.stats_hour),
            day=_window(data.stats_day),
        )

    async def clean_unused_topics(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Have brokers drop the queues of topics that they do not have any more."""
        await self._clean(RequestCode.CLEAN_UNUSED_TOPIC, cluster, broker)

    async def clean_expired_queues(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Have brokers drop queue files whose messages are gone."""
        await self._clean(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, cluster, broker)

    async def delete_expired_files(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Have brokers delete log files that are older than `fileReservedTime` now."""
        await self._clean(RequestCode.DELETE_EXPIRED_COMMITLOG, cluster, broker)

    async def _clean(self, code: RequestCode, cluster: str | None, broker: str | None) -> None:
        async def clean(target: Target) -> None:
            await self._ask(target.address, request(code), is_long=True)

        await self._at_each(await self._targets(cluster, broker, is_every_cluster=True), clean)

    # --- name servers ---

    async def namesrv_settings(self) -> dict[str, dict[str, str]]:
        """Return the settings of each name server, by its address."""
        answers = await self._tell_namesrvs(RequestCode.GET_NAMESRV_CONFIG)
        return {
            address: dict(sorted(parse_properties(answer.body).items()))
            for address, answer in answers.items()
        }

    async def update_namesrv_settings(self, changes: Mapping[str, str]) -> None:
        """Change settings of all name servers."""
        body = write_properties(_checked(changes)).encode()
        await self._tell_namesrvs(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Keep a value under a key at all name servers."""
        header = PutKv(namespace=namespace, key=key, value=value)
        await self._tell_namesrvs(RequestCode.PUT_KV_CONFIG, header)

    async def get_kv(self, namespace: str, key: str) -> str | None:
        """Return the value of a key; None when there is none."""
        header = GetKv(namespace=namespace, key=key)
        try:
            answer = await self._ask_namesrv(RequestCode.GET_KV_CONFIG, header)
        except RequestFailed as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return None
        return read_header(GetKvAnswer, answer.fields).value

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Forget a key at all name servers; one that is not there is no error."""
        header = DeleteKv(namespace=namespace, key=key)
        await self._tell_namesrvs(RequestCode.DELETE_KV_CONFIG, header)

    async def list_kv(self, namespace: str) -> dict[str, str]:
        """Return all keys and values of a namespace; empty when there is none of that name."""
        try:
            answer = await self._ask_namesrv(
                RequestCode.GET_KVLIST_BY_NAMESPACE, ListKv(namespace=namespace)
            )
        except RequestFailed as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return {}
        return dict(sorted(read_json(answer.body, KVTable).table.items()))

    async def wipe_write_permission(self, broker: str) -> dict[str, int]:
        """Have producers leave a broker alone, until it registers something new.

        Gives the number of topics that this touched, by name server. Raises NotFound when no name
        server has such a broker.
        """
        answers = await self._tell_namesrvs(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER, WipeWritePerm(broker_name=broker)
        )
        counts = {
            address: read_header(WipeWritePermAnswer, answer.fields).wipe_topic_count
            for address, answer in answers.items()
        }
        return await self._known_broker(broker, counts)

    async def add_write_permission(self, broker: str) -> dict[str, int]:
        """Have producers use a broker again: the opposite of `wipe_write_permission`."""
        answers = await self._tell_namesrvs(
            RequestCode.ADD_WRITE_PERM_OF_BROKER, AddWritePerm(broker_name=broker)
        )
        counts = {
            address: read_header(AddWritePermAnswer, answer.fields).add_topic_count
            for address, answer in answers.items()
        }
        return await self._known_broker(broker, counts)

    async def _known_broker(self, broker: str, counts: dict[str, int]) -> dict[str, int]:
        """Return the counts, or raise NotFound: nothing was touched as there is no such broker."""
        if not any(counts.values()):
            names = [entry.name for known in await self.clusters() for entry in known.brokers]
            if broker not in names:
                there = f"known are {', '.join(names)}" if names else "no broker has registered"
                raise NotFound("broker", broker, there)
        return counts


def _checked(changes: Mapping[str, str]) -> Mapping[str, str]:
    if not changes:
        raise LocalProtocolError("no setting is given; write them as name and value")
    return changes


def _window(figures: WindowFigures) -> Window:
    return Window(sum=figures.sum, tps=figures.tps, average=figures.avgpt)


def _counts(table: dict[str, str], prefix: str) -> tuple[int, int, int]:
    """Return what was counted until now, until this morning and until yesterday morning."""
    ends = ("TodayNow", "TodayMorning", "YesterdayMorning")
    now, today, yesterday = (_whole(table.get(f"{prefix}Total{end}")) for end in ends)
    return now, today, yesterday


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def _whole(text: str | None) -> int:
    return int(_number(text))
