"""One scripted exchange of a client with a broker, and the history of what came of it.

In: a link that may be cut anywhere. Out: per message and send-back one of ok, unknown, unsent; the
offset that was committed at most. Steps: heartbeat, send, batch, pull, a held pull that a send
wakes, commit, send back, lock, unlock.

Rule: sizes do not depend on how often it ran, so that a place in it has one number: all ids and
offsets that go out have a fixed width.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.message_id import decode_offset_id
from orbitmq.wire.record import scan_records
from tests.behaviour.requests import heartbeat_body, pull_request, send_request
from tests.reliability.cutting import Link, LinkCut

HELD_QUEUE = 1
BACK_LEVEL = 1


@dataclass
class History:
    """What a worker knows of its messages, by the text in their bodies."""

    ok: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Queue and queue offset as answered."""
    unknown: set[str] = field(default_factory=set)
    unsent: set[str] = field(default_factory=set)
    backs_ok: set[str] = field(default_factory=set)
    backs_unknown: set[str] = field(default_factory=set)
    committed_least: int = 0
    committed_most: int = 0
    exchanges: int = 0
    finished: int = 0
    """Exchanges that came to their end."""


class Exchange:
    """One run of the script by one worker, under a number of its own."""

    def __init__(self, link: Link, worker: int, number: int, history: History) -> None:
        self._link = link
        self._topic, self._group = f"T9_{worker}", f"T9_G_{worker}"
        self._client_id = f"client-{worker}-{number:05d}"
        self._id = f"{worker}-{number:05d}"
        self._number = number
        self._history = history
        self._opaque = 1_000
        self._log_offset = 0
        self._next_offset = 0

    async def run(self) -> None:
        """Take the steps until the link is cut."""
        history = self._history
        history.exchanges += 1
        names = ("send", "one", "two", "held")
        history.unsent.update(self._named(name) for name in names)
        try:
            for step in (
                self._heartbeat,
                self._send,
                self._batch,
                self._pull,
                self._hold,
                self._commit,
                self._send_back,
                self._lock,
            ):
                await step()
            history.finished += 1
        except LinkCut:
            pass

    def _named(self, name: str) -> str:
        return f"{self._id}-{name}"

    async def _ask(self, request: Command, on_sent: Callable[[], None] = lambda: None) -> Command:
        self._opaque += 1
        request.opaque = self._opaque
        try:
            return await self._link.ask(request)
        finally:
            if self._link.is_last_whole:
                on_sent()

    def _asked(self, *names: str) -> Callable[[], None]:
        """What to note when a send of these messages left whole."""

        def note() -> None:
            for name in names:
                self._history.unsent.discard(self._named(name))
                self._history.unknown.add(self._named(name))

        return note

    def _stored(self, name: str, queue_id: int, queue_offset: int) -> None:
        self._history.unknown.discard(self._named(name))
        self._history.ok[self._named(name)] = (queue_id, queue_offset)

    async def _heartbeat(self) -> None:
        body = heartbeat_body(self._client_id, self._group, self._topic)
        answer = await self._ask(Command(RequestCode.HEART_BEAT, body=body))
        assert answer.code == 0, answer.remark

    async def _send(self) -> None:
        request = send_request(self._topic, self._named("send").encode())
        answer = await self._ask(request, self._asked("send"))
        assert answer.code == 0, answer.remark
        self._stored("send", 0, int(answer.fields["queueOffset"]))
        self._log_offset = decode_offset_id(answer.fields["msgId"]).log_offset

    async def _batch(self) -> None:
        messages = [
            BatchMessage(self._named(name).encode(), b"TAGS\x01TagA", 0) for name in ("one", "two")
        ]
        request = send_request(self._topic, encode_batch(messages), m="true")
        request.code = RequestCode.SEND_BATCH_MESSAGE
        answer = await self._ask(request, self._asked("one", "two"))
        assert answer.code == 0, answer.remark
        first = int(answer.fields["queueOffset"])
        for place, name in enumerate(("one", "two")):
            self._stored(name, 0, first + place)

    async def _pull(self) -> None:
        _, first = self._history.ok[self._named("send")]
        request = pull_request(self._topic, self._group, first, queueOffset=_wide(first))
        answer = await self._ask(request)
        assert answer.code == 0, answer.remark
        found = [record.body.decode() for record in scan_records(answer.body)]
        ours = [self._named(name) for name in ("send", "one", "two")]
        assert [body for body in found if body in ours] == ours
        self._next_offset = first + 3

    async def _hold(self) -> None:
        """Have a pull held, and wake it by a message on the same connection."""
        ends = await self._ask(_max_offset(self._topic))
        end = int(ends.fields["offset"])
        held = pull_request(self._topic, self._group, end, queueId=HELD_QUEUE, sysFlag=6)
        held.fields |= {"queueOffset": _wide(end), "suspendTimeoutMillis": "15000"}
        self._opaque += 1
        held.opaque = self._opaque
        await self._link.send(held)
        request = send_request(self._topic, self._named("held").encode(), e=HELD_QUEUE)
        answer = await self._ask(request, self._asked("held"))
        assert answer.code == 0, answer.remark
        self._stored("held", HELD_QUEUE, int(answer.fields["queueOffset"]))
        woken = await self._link.answer(held.opaque)
        assert woken.code == 0, woken.remark
        (record,) = scan_records(woken.body)
        assert record.body.decode() == self._named("held")

    async def _commit(self) -> None:
        history, offset = self._history, self._next_offset
        fields = {"consumerGroup": self._group, "topic": self._topic, "queueId": "0"}
        fields["commitOffset"] = _wide(offset)

        def asked() -> None:
            history.committed_most = offset

        request = Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields=fields)
        answer = await self._ask(request, asked)
        assert answer.code == 0, answer.remark
        history.committed_least = offset

    async def _send_back(self) -> None:
        history, name = self._history, self._named("send")
        fields = {
            "offset": _wide(self._log_offset),
            "group": self._group,
            "delayLevel": str(BACK_LEVEL),
            "originMsgId": "",
            "originTopic": self._topic,
            "unitMode": "false",
            "maxReconsumeTimes": "16",
        }
        request = Command(RequestCode.CONSUMER_SEND_MSG_BACK, fields=fields)
        answer = await self._ask(request, lambda: history.backs_unknown.add(name))
        assert answer.code == 0, answer.remark
        history.backs_unknown.discard(name)
        history.backs_ok.add(name)

    async def _lock(self) -> None:
        queue_id = 10_000 + self._number  # a lock whose client was cut off stays for a minute
        queue = f'{{"topic":"{self._topic}","brokerName":"b","queueId":{queue_id}}}'
        body = (
            f'{{"clientId":"{self._client_id}","consumerGroup":"{self._group}","mqSet":[{queue}]}}'
        ).encode()
        locked = await self._ask(Command(RequestCode.LOCK_BATCH_MQ, body=body))
        assert locked.code == 0, locked.remark
        assert b'"queueId"' in locked.body, "a free queue is locked"
        unlocked = await self._ask(Command(RequestCode.UNLOCK_BATCH_MQ, body=body))
        assert unlocked.code == 0, unlocked.remark


def _wide(number: int) -> str:
    return f"{number:012d}"


def _max_offset(topic: str) -> Command:
    return Command(RequestCode.GET_MAX_OFFSET, fields={"topic": topic, "queueId": str(HELD_QUEUE)})
