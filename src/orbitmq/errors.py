"""Every exception of ours, one tree.

In: the facts of a failure. Out: an exception that keeps them as attributes and says in its text
what went wrong and, where there is one, which setting or command changes it.

Rules:
1. What a peer does wrong is a RemoteProtocolError; what our caller does wrong is a
   LocalProtocolError. Any other exception out of `wire` is a bug of ours.
2. "Definitely failed" and "outcome unknown" are never the same type: whatever may have been done
   all the same is an OutcomeUnknown.
3. One place turns an exception into a response code (`net.dispatch`), one turns a response code
   into an exception (`client.remote`).
"""

from collections import Counter
from collections.abc import Sequence


class MQError(Exception):
    """The root of everything OrbitMQ raises on purpose."""


class ProtocolError(MQError):
    """Bytes or values that the protocol does not allow."""


class LocalProtocolError(ProtocolError):
    """Our own caller asked for something that cannot be put on the wire."""


class ArgumentError(LocalProtocolError, TypeError):
    """An argument is not of the type that it must be; `argument` is its name."""

    def __init__(self, problem: str, argument: str) -> None:
        super().__init__(problem)
        self.argument = argument


class RemoteProtocolError(ProtocolError):
    """A peer sent something that the protocol does not allow.

    `reason` is a short fixed word (it labels a metric), `detail` says what was seen.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class SqlError(MQError):
    """An SQL92 expression that cannot be used; `position` is the first wrong character, from 1."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"at character {position}: {problem}")
        self.position = position
        self.problem = problem


class StoreError(MQError):
    """The store cannot do what was asked."""


class CorruptRecord(StoreError):
    """Bytes at a place where a record should be are not one."""

    def __init__(self, log_offset: int, detail: str) -> None:
        super().__init__(f"no valid record at log offset {log_offset}: {detail}")
        self.log_offset = log_offset
        self.detail = detail


class FileFailed(StoreError):
    """The file system refused something; `path` is of which file or folder, empty: of several."""

    def __init__(self, problem: str, path: object = "") -> None:
        super().__init__(problem)
        self.path = str(path)


class DiskFull(FileFailed):
    """The file system refused a write for lack of space; nothing of it counts as written."""


class WriteFailed(FileFailed):
    """The file system refused a write; nothing of it counts as written."""


class ReadFailed(FileFailed):
    """The file system could not give what a file holds; it may be there all the same."""


class SyncFailed(FileFailed):
    """A sync was refused: what was written before it may never reach the disk, now or later."""


class RequestFailed(MQError):
    """A request was answered, or is to be answered, with a code other than SUCCESS."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"code {code}: {remark}")
        self.code = code
        self.remark = remark


class OutcomeUnknown(MQError):
    """Nobody knows whether it was done; doing it again may do it twice."""


class RequestTimeout(OutcomeUnknown):
    """No answer came in time: the peer may have done what was asked."""

    def __init__(self, code: int, peer: str, timeout_s: float) -> None:
        super().__init__(
            f"no answer to request {code} from {peer} within {timeout_s:g} s; it may have been done"
        )
        self.code = code
        self.peer = peer
        self.timeout_s = timeout_s


class ConnectFailed(MQError):
    """No connection could be made, so nothing was sent; `address` is whose, empty: of several."""

    def __init__(self, problem: str, address: str = "") -> None:
        super().__init__(problem)
        self.address = address


class ConnectionClosed(OutcomeUnknown):
    """The connection ended while a request was under way: it may have been done.

    `peer` is the other side, `reason` the word under which metrics count the end.
    """

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"the connection to {peer} ended: {reason}")
        self.peer = peer
        self.reason = reason


class RouteNotFound(MQError):
    """No name server says where a topic is. Nothing was sent.

    `name_servers` are the addresses that were asked, `cause` is what they said.
    """

    def __init__(self, topic: str, name_servers: Sequence[str], cause: str, advice: str) -> None:
        asked = ", ".join(name_servers) or "none"
        super().__init__(f"no route for topic {topic}: {cause} (asked: {asked}); {advice}")
        self.topic = topic
        self.name_servers = tuple(name_servers)
        self.cause = cause
        self.advice = advice


class BrokerNotFound(MQError):
    """The routes have no address for a broker; nothing was sent."""

    def __init__(self, broker_name: str, topic: str) -> None:
        super().__init__(
            f"the route of topic {topic} has no address for broker {broker_name}; it has stopped, "
            "or it has registered with other name servers"
        )
        self.broker_name = broker_name
        self.topic = topic


class BrokerBusy(RequestFailed):
    """A broker refused a request to protect itself. Nothing was stored; send less, or later."""


class AccessDenied(RequestFailed):
    """A broker does not allow it: a permission of the topic or of the broker, or access control."""


class SendFailed(MQError):
    """A message was certainly not stored: every attempt was refused or could not be sent.

    `attempts` are pairs of a broker's name and why it did not work there; when there was none,
    the text has the `cause`.
    """

    def __init__(
        self, topic: str, attempts: Sequence[tuple[str, Exception]] = (), cause: str = ""
    ) -> None:
        super().__init__(f"not sent to topic {topic}: {cause or _told(attempts)}")
        self.topic = topic
        self.attempts = tuple(attempts)


class SendUnknown(OutcomeUnknown):
    """A message may or may not be stored: an attempt got no answer, and no other one succeeded."""

    def __init__(self, topic: str, attempts: Sequence[tuple[str, Exception]]) -> None:
        super().__init__(f"it may have been sent to topic {topic}, or not: {_told(attempts)}")
        self.topic = topic
        self.attempts = tuple(attempts)


class BatchFailed(MQError):
    """Some messages of a batch, or all, were certainly not stored; the others were.

    `outcomes` has one entry for each message, in their order: a SendResult or a SendFailed.
    """

    def __init__(self, topic: str, outcomes: Sequence[object]) -> None:
        super().__init__(_told_batch(topic, outcomes))
        self.topic = topic
        self.outcomes = tuple(outcomes)


class BatchUnknown(OutcomeUnknown):
    """Of some messages of a batch nobody knows whether they are stored.

    `outcomes` has one entry for each message, in their order: a SendResult, a SendFailed or a
    SendUnknown.
    """

    def __init__(self, topic: str, outcomes: Sequence[object]) -> None:
        super().__init__(_told_batch(topic, outcomes))
        self.topic = topic
        self.outcomes = tuple(outcomes)


def _told_batch(topic: str, outcomes: Sequence[object]) -> str:
    failures = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    return f"{len(failures)} of {len(outcomes)} messages to topic {topic} failed: {failures[0]}"


def _told(attempts: Sequence[tuple[str, Exception]]) -> str:
    """Return the attempts as text; those that failed in the same way stand there once."""
    counts = Counter(f"{broker}: {error}" for broker, error in attempts)
    texts = [text if count == 1 else f"{text} ({count} times)" for text, count in counts.items()]
    return "; ".join(texts) or "nobody to send it to"


class NotFound(MQError):
    """What was named does not exist. `kind` is what it would be, `name` what it was called."""

    def __init__(self, kind: str, name: str, advice: str) -> None:
        super().__init__(f"there is no {kind} {name}: {advice}")
        self.kind = kind
        self.name = name
        self.advice = advice


class PartlyFailed(MQError):
    """Something that several servers were to do was certainly not done by some of them.

    `done` are those that did it, `failures` are pairs of a server and why it did not.
    """

    def __init__(self, done: Sequence[str], failures: Sequence[tuple[str, Exception]]) -> None:
        super().__init__(_partly(done, failures))
        self.done = tuple(done)
        self.failures = tuple(failures)


class PartlyUnknown(OutcomeUnknown):
    """The same, where at least one server did not answer and may have done it."""

    def __init__(self, done: Sequence[str], failures: Sequence[tuple[str, Exception]]) -> None:
        super().__init__(_partly(done, failures))
        self.done = tuple(done)
        self.failures = tuple(failures)


def _partly(done: Sequence[str], failures: Sequence[tuple[str, Exception]]) -> str:
    return f"done at {', '.join(done) or 'none'}, but not at {_told(failures)}"


class ClientStateError(MQError):
    """A client was used before its start or after its end, or started twice."""


class LimitExceeded(MQError):
    """Something would grow past its limit.

    `limit` is the number, `setting` what it is called where it can be changed.
    """

    def __init__(self, problem: str, limit: int, setting: str = "") -> None:
        super().__init__(problem)
        self.limit = limit
        self.setting = setting


class SettingError(MQError):
    """A setting has a value that cannot be used, or (with --strict) a name nobody knows."""


class MissingExtra(MQError):
    """Something needs a package that is not installed; `extra` brings it."""

    def __init__(self, purpose: str, package: str, extra: str) -> None:
        super().__init__(f"{purpose} need the package {package}: pip install orbitmq[{extra}]")
        self.package = package
        self.extra = extra


class MissingProgram(MQError):
    """Something needs another program that is not installed, or one that is newer."""
