"""Offsets: where queues begin and end, where groups stand, and moving groups elsewhere.

In: queues, groups, times, offsets. Out: offsets, or what a reset did.

Rules:
1. A reset by time goes to the brokers first (222): they tell running consumers. Where nobody is
   online an older broker refuses, and each queue's offset is written instead (15), as the
   original's tools do it. Brokers of 5.x do both by themselves.
2. So does a reset to an offset, but 4.9 brokers cannot do that for single queues and would move all
   of them by time: they are not asked, and running groups there are refused.
3. Only masters are asked: they keep the offsets.
"""

from collections.abc import Mapping

from orbitmq.client.admin_base import Target
from orbitmq.client.admin_groups import AdminGroups
from orbitmq.client.admin_results import MASTER_ID, QueueReset, QueueStats, ResetResult
from orbitmq.client.remote import request
from orbitmq.errors import LocalProtocolError, NotFound, RequestFailed
from orbitmq.wire.bodies_answers import read_consumer_status, read_offsets
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.bodies_consume import CorrectionOffsets
from orbitmq.wire.bodies_runtime import RuntimeInfo
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.fastjson import read_json
from orbitmq.wire.fields import read_header
from orbitmq.wire.headers_client import (
    GetEarliestStoreTime,
    GetEarliestStoreTimeAnswer,
    GetMaxOffset,
    GetMaxOffsetAnswer,
    GetMinOffset,
    GetMinOffsetAnswer,
    QueryConsumerOffset,
    QueryConsumerOffsetAnswer,
    SearchOffset,
    SearchOffsetAnswer,
    UpdateConsumerOffset,
)
from orbitmq.wire.headers_consume import (
    TO_THE_END,
    CloneGroupOffset,
    GetConsumerStatus,
    QueryCorrectionOffset,
    ResetOffset,
)

EARLIEST_MS = 0
ACTIVE_KEY = "brokerActive"
"""In the runtime table of brokers that obey a reset of single queues: 5.x and ours."""

REFUSED_OFFLINE = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR)
"""What 4.9 says to a reset of a group of which nobody is online, or that has no offset yet."""

NO_CORRECTION = 2**63 - 1


class AdminOffsets(AdminGroups):
    """The part of Admin about offsets."""

    # --- of queues ---

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that a queue still has."""
        wrapped = self._wrap_queue(queue)
        header = GetMinOffset(topic=wrapped.topic, queue_id=wrapped.queue_id)
        asked = request(RequestCode.GET_MIN_OFFSET, header)
        answer = await self._ask(await self._master_of(wrapped), asked)
        return read_header(GetMinOffsetAnswer, answer.fields).queue_offset

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of a queue will get."""
        wrapped = self._wrap_queue(queue)
        header = GetMaxOffset(topic=wrapped.topic, queue_id=wrapped.queue_id)
        asked = request(RequestCode.GET_MAX_OFFSET, header)
        answer = await self._ask(await self._master_of(wrapped), asked)
        return read_header(GetMaxOffsetAnswer, answer.fields).queue_offset

    async def offset_by_time(self, queue: MessageQueue, time_ms: int) -> int:
        """Return the offset of the first message stored at or after a time.

        Brokers of 4.9 give the nearest one instead when none was stored at that very time.
        """
        wrapped = self._wrap_queue(queue)
        return await self._search(await self._master_of(wrapped), wrapped, time_ms)

    async def _search(self, address: str, wrapped: MessageQueue, time_ms: int) -> int:
        header = SearchOffset(topic=wrapped.topic, queue_id=wrapped.queue_id, timestamp_ms=time_ms)
        asked = request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        answer = await self._ask(address, asked)
        return max(0, read_header(SearchOffsetAnswer, answer.fields).queue_offset)

    async def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """Return when a queue's first message was stored, in ms since 1970; None: it has none."""
        wrapped = self._wrap_queue(queue)
        header = GetEarliestStoreTime(topic=wrapped.topic, queue_id=wrapped.queue_id)
        asked = request(RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        answer = await self._ask(await self._master_of(wrapped), asked)
        time_ms = read_header(GetEarliestStoreTimeAnswer, answer.fields).timestamp_ms
        return time_ms if time_ms > 0 else None

    # --- of groups ---

    async def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return where a group goes on in a queue; None: it has no offset there.

        For a queue whose first message is recent brokers may answer 0 instead of None.
        """
        wrapped = self._wrap_queue(queue)
        header = QueryConsumerOffset(
            consumer_group=self._wrap(group),
            topic=wrapped.topic,
            queue_id=wrapped.queue_id,
            set_zero_if_not_found=False,
        )
        asked = request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        expected = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answer = await self._ask(await self._master_of(wrapped), asked, expected=expected)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return read_header(QueryConsumerOffsetAnswer, answer.fields).queue_offset

    async def set_group_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Write where a group goes on in a queue.

        Running consumers do not notice and write their own offset again: see `reset_to_offset`.
        """
        wrapped = self._wrap_queue(queue)
        await self._commit(await self._master_of(wrapped), self._wrap(group), wrapped, offset)

    async def _commit(
        self, address: str, wrapped_group: str, wrapped: MessageQueue, offset: int
    ) -> None:
        header = UpdateConsumerOffset(
            consumer_group=wrapped_group,
            topic=wrapped.topic,
            queue_id=wrapped.queue_id,
            commit_offset=offset,
        )
        group = self._unwrap(wrapped_group)
        try:
            asked = request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
            answer = await self._ask(address, asked)
        except RequestFailed as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            advice = f"{address} does not know it; make it first (orbitmq group create {group})"
            raise NotFound("group", group, advice) from None
        if answer.remark:  # 5.x says so when it has ignored the offset
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"{answer.remark}; group {group} has not pulled since, so reset it once more "
                f"instead (said by {address})",
            )

    async def member_offsets(
        self, group: str, topic: str, *, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """Return where each running consumer of a group says it is in a topic, by client id."""
        header = GetConsumerStatus(
            topic=self._wrap(topic), consumer_group=self._wrap(group), client_id=client_id
        )
        _, targets = await self._targets_of_topic(header.topic)

        async def look(target: Target) -> dict[str, dict[MessageQueue, int]]:
            asked = request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
            answer = await self._ask(target.address, asked, is_long=True)
            return read_consumer_status(answer.body)

        merged: dict[str, dict[MessageQueue, int]] = {}
        for tables in (await self._at_each(targets, look)).values():
            for member, offsets in tables.items():
                merged.setdefault(member, {}).update(offsets)
        return merged

    async def correction_offsets(
        self, group: str, topic: str, *, without: tuple[str, ...] = ()
    ) -> dict[MessageQueue, int]:
        """Give, for each queue of a topic, the least offset of all groups that is still there.

        Queues in which `group` is behind all others are left out, as are the groups `without`.
        """
        header = QueryCorrectionOffset(
            topic=self._wrap(topic),
            compare_group=self._wrap(group),
            filter_groups=",".join(map(self._wrap, without)) or None,
        )
        _, targets = await self._targets_of_topic(header.topic)

        async def look(target: Target) -> dict[int, int]:
            asked = request(RequestCode.QUERY_CORRECTION_OFFSET, header)
            answer = await self._ask(target.address, asked)
            return read_json(answer.body, CorrectionOffsets).correction_offsets

        return {
            MessageQueue(topic, target.name, queue_id): offset
            for target, table in (await self._at_each(targets, look)).items()
            for queue_id, offset in sorted(table.items())
            if offset != NO_CORRECTION
        }

    async def clone_offsets(self, source: str, target: str, *, topic: str | None = None) -> None:
        """Let one group go on where another one stands, in a topic or in all of the source's.

        The consumers of the target group must not be running: they would write their own offsets.
        """
        header = CloneGroupOffset(
            src_group=self._wrap(source),
            dest_group=self._wrap(target),
            topic=self._wrap(topic) if topic else None,
            offline=True,
        )
        if header.topic is not None:
            _, brokers = await self._targets_of_topic(header.topic)
        else:
            brokers = await self._targets_of_group(header.src_group)

        async def clone(broker: Target) -> None:
            await self._ask(broker.address, request(RequestCode.CLONE_GROUP_OFFSET, header))

        await self._at_each(brokers, clone)

    # --- resets ---

    async def reset_to_earliest(self, group: str, topic: str) -> ResetResult:
        """Have a group consume a topic again from its first message on."""
        return await self.reset_to_time(group, topic, EARLIEST_MS)

    async def reset_to_latest(self, group: str, topic: str) -> ResetResult:
        """Have a group pass over everything that a topic holds."""
        return await self.reset_to_time(group, topic, TO_THE_END)

    async def reset_to_time(
        self, group: str, topic: str, time_ms: int, *, only_back: bool = False
    ) -> ResetResult:
        """Have a group go on at what was stored at a time, in ms since 1970.

        With `only_back` a queue in which the group is not that far yet stays as it is; brokers of
        5.x do not heed that.

        >>> await admin.reset_to_time("billing", "orders", an_hour_ago_ms)

        Raises RouteNotFound for an unknown topic, NotFound for an unknown group.
        """
        header = ResetOffset(
            topic=self._wrap(topic),
            consumer_group=self._wrap(group),
            timestamp_ms=time_ms,
            is_force=not only_back,
        )

        async def reset(target: Target) -> tuple[bool, dict[MessageQueue, int]]:
            return await self._reset_at(target, header)

        found = await self._at_each(await self._masters_of_topic(header.topic), reset)
        offsets = {queue: at for _, table in found.values() for queue, at in table.items()}
        is_running = any(is_running for is_running, _ in found.values())
        return self._reset_result(group, topic, offsets, is_running=is_running)

    async def _reset_at(
        self, target: Target, header: ResetOffset
    ) -> tuple[bool, dict[MessageQueue, int]]:
        """Reset at one broker: by the broker or, where nobody is online, by writing (rule 1)."""
        is_running = bool(await self._connections([target], header.consumer_group))
        asked = request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        try:
            answer = await self._ask(target.address, asked, is_long=True)
        except RequestFailed as error:
            if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                await self.group_config(self._unwrap(header.consumer_group))  # says so
            if is_running or error.code not in REFUSED_OFFLINE:
                raise
        else:
            return is_running, read_offsets(answer.body)
        return False, await self._write_offsets(target, header)

    async def _write_offsets(self, target: Target, header: ResetOffset) -> dict[MessageQueue, int]:
        group = header.consumer_group
        stored: dict[MessageQueue, int] = {}
        if not header.is_force:
            table, _ = await self._progress_at(target, group, header.topic)
            stored = {queue: one.consumer_offset for queue, one in table.items()}
        offsets: dict[MessageQueue, int] = {}
        for row in await self._stats_at(target, header.topic):
            queue = MessageQueue(header.topic, row.broker, row.queue_id)
            offset = await self._offset_at(target, row, queue, header.timestamp_ms)
            offsets[queue] = min(offset, stored.get(queue, offset))
            await self._commit(target.address, group, queue, offsets[queue])
        return offsets

    async def _offset_at(
        self, target: Target, row: QueueStats, queue: MessageQueue, time_ms: int
    ) -> int:
        if time_ms == TO_THE_END:
            return row.max_offset
        if time_ms == EARLIEST_MS:
            return row.min_offset
        return await self._search(target.address, queue, time_ms)

    async def reset_to_offset(
        self, group: str, topic: str, offsets: int | Mapping[MessageQueue, int]
    ) -> ResetResult:
        """Have a group go on at an offset: one for each queue given, or one number for all.

        A number that a queue does not have becomes the nearest one that it has; an offset given
        for a queue must be there. A running group is moved by its broker; brokers of 4.9 cannot,
        so stop its consumers first.

        >>> await admin.reset_to_offset("billing", "orders", {queue: 17})
        """
        name, wrapped_topic = self._wrap(group), self._wrap(topic)
        targets = await self._masters_of_topic(wrapped_topic)
        wanted = await self._wanted_offsets(targets, wrapped_topic, offsets)

        async def reset(target: Target) -> bool:
            mine = {queue: at for queue, at in wanted.items() if queue.broker_name == target.name}
            return bool(mine) and await self._reset_queues(target, name, mine)

        found = await self._at_each(targets, reset)
        return self._reset_result(group, topic, wanted, is_running=any(found.values()))

    async def _wanted_offsets(
        self, targets: list[Target], wrapped_topic: str, given: int | Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, int]:
        async def look(target: Target) -> list[QueueStats]:
            return await self._stats_at(target, wrapped_topic)

        found = await self._at_each(targets, look)
        there = {
            MessageQueue(wrapped_topic, row.broker, row.queue_id): row
            for rows in found.values()
            for row in rows
        }
        if isinstance(given, int):
            return {
                queue: min(max(given, row.min_offset), row.max_offset)
                for queue, row in there.items()
            }
        wanted = {self._wrap_queue(queue): offset for queue, offset in given.items()}
        for queue, offset in wanted.items():
            row = there.get(queue)
            if row is None or not row.min_offset <= offset <= row.max_offset:
                place = f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name}"
                has = f"has {row.min_offset} to {row.max_offset}" if row else "does not exist"
                raise LocalProtocolError(f"{place} {has}; a group cannot go on at {offset}")
        return wanted

    async def _reset_queues(
        self, target: Target, wrapped_group: str, offsets: Mapping[MessageQueue, int]
    ) -> bool:
        """Reset single queues at one broker (rule 2); give whether consumers are running."""
        is_running = bool(await self._connections([target], wrapped_group))
        answer = await self._ask(target.address, request(RequestCode.GET_BROKER_RUNTIME_INFO))
        is_able = ACTIVE_KEY in read_json(answer.body, RuntimeInfo).table
        if is_running and not is_able:
            raise RequestFailed(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"broker {target.name} cannot move running consumers to an offset; stop those of "
                f"group {self._unwrap(wrapped_group)} first, or reset by time",
            )
        for queue, offset in offsets.items():
            if not is_able or not await self._reset_queue(target, wrapped_group, queue, offset):
                if is_running:
                    raise RequestFailed(
                        ResponseCode.CONSUMER_NOT_ONLINE,
                        f"the consumers of group {self._unwrap(wrapped_group)} come and go; "
                        "try again",
                    )
                await self._commit(target.address, wrapped_group, queue, offset)
        return is_running

    async def _reset_queue(
        self, target: Target, wrapped_group: str, queue: MessageQueue, offset: int
    ) -> bool:
        """Have a broker move a group in one queue; give False when it wants somebody online."""
        header = ResetOffset(
            topic=queue.topic,
            consumer_group=wrapped_group,
            timestamp_ms=EARLIEST_MS,
            is_force=True,
            queue_id=queue.queue_id,
            queue_offset=offset,
        )
        asked = request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        try:
            await self._ask(target.address, asked, is_long=True)
        except RequestFailed as error:
            if error.code not in REFUSED_OFFLINE:
                raise
            return False
        return True

    async def _masters_of_topic(self, wrapped_topic: str) -> list[Target]:
        _, targets = await self._targets_of_topic(wrapped_topic)
        masters = [target for target in targets if target.broker_id == MASTER_ID]
        if len(masters) < len(targets) or not masters:
            names = ", ".join(target.name for target in targets if target not in masters)
            raise NotFound(
                "master", f"of {names or wrapped_topic}", "offsets are written at masters only"
            )
        return masters

    def _reset_result(
        self, group: str, topic: str, offsets: Mapping[MessageQueue, int], *, is_running: bool
    ) -> ResetResult:
        return ResetResult(
            group=group,
            topic=topic,
            queues=tuple(
                QueueReset(
                    topic=topic, broker=queue.broker_name, queue_id=queue.queue_id, offset=offset
                )
                for queue, offset in sorted(offsets.items())
            ),
            is_running=is_running,
        )
