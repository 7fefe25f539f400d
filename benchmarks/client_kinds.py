"""What is measured of clients: ways to send and to consume, on which loop, with which aim.

In: nothing. Out: the kinds, and how much of them a plan wants. Rules:

1. A kind's `command` is what both client programs know it by. Java has no `await`: what is awaited
   here is compared with its synchronous send, and both handlers with its one listener.
2. The synchronous client has its own loop in the background (uvloop where it is installed), so it
   is measured once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.servers import ORIGINAL_VERSION

ASYNCIO, UVLOOP, JAVA = "asyncio", "uvloop", f"Java {ORIGINAL_VERSION}"
BOTH_LOOPS = (ASYNCIO, UVLOOP)


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to use a client."""

    name: str
    command: str
    java_command: str
    loops: Sequence[str] = BOTH_LOOPS
    is_send: bool = False
    aim: float | None = None
    """The share of Java's CPU per message that ours may cost; such kinds get whole runs."""

    def command_of(self, client: str) -> str | None:
        """Return a client's word for it; None when it is not measured there."""
        if client == JAVA:
            return self.java_command
        return self.command if client in self.loops else None


PIPELINED = Kind("sends, 256 in flight", "pipelined", "pipelined", is_send=True, aim=0.6)
PUSH = Kind("push consumer, async handler", "push", "push", aim=0.8)
KINDS = (
    PIPELINED,
    Kind("sends awaited one by one", "awaited", "blocking", is_send=True),
    Kind("synchronous sends", "blocking", "blocking", loops=(UVLOOP,), is_send=True),
    PUSH,
    Kind("push consumer, plain function", "push-plain", "push"),
    Kind("pull consumer, poll loop", "poll", "poll"),
)


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """How much of the clients is measured."""

    kinds: Sequence[Kind]
    loops: Sequence[str]
    has_java: bool
    """Beside Java's client, where Java and Maven are there."""
    message_count: int
    """How many messages a consumer finds."""
    warm_up_s: float
    """How long Java's client does each of its kinds before it is measured."""


WHOLE = ClientPlan(KINDS, BOTH_LOOPS, has_java=True, message_count=80_000, warm_up_s=6.0)
QUICK = ClientPlan(KINDS, BOTH_LOOPS, has_java=True, message_count=1_000, warm_up_s=0.1)
