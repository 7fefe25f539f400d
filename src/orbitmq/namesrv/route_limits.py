"""What may enter the tables of a name server: names, addresses, queues, and how much of each.

In: what a peer sent, and the limits. Out: a sentence that says what is wrong with it and which
range is allowed, or None.

Rules:
1. Names are data. They must be printable and short, so that they can stand in logs and answers;
   a topic that a broker registers need not follow the rules for new topics, as every broker also
   registers its own name, often a host name with dots.
2. A number outside its range is refused with the range.
"""

import msgspec

from orbitmq.config import NamesrvSettings
from orbitmq.wire.bodies_namesrv import QueueData

NAME_CHARS_MAX = 255
"""The longest name of the originals: retry topics of 5.x and host names end here, too."""

PERM_MAX = 15
"""The bits inherit 1, write 2, read 4 and priority 8."""

FILTER_SERVERS_MAX = 64
"""One broker starts at most as many filter servers as its setting says, 0 by default."""

MAPPING_SIZE_MAX = 65_536
"""The queue mapping of a static topic with some 4,000 queues."""


class RouteLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How far peers can make the route table grow."""

    brokers_max: int = 10_000
    topics_max: int = 200_000
    routes_max: int = 500_000
    queues_per_topic_max: int = 65_536


def limits_of(settings: NamesrvSettings) -> RouteLimits:
    """Return the limits that the settings ask for."""
    return RouteLimits(
        brokers_max=settings.brokers_max,
        topics_max=settings.topics_max,
        routes_max=settings.routes_max,
        queues_per_topic_max=settings.queues_per_topic_max,
    )


def name_fault(kind: str, name: str) -> str | None:
    """Say what is wrong with a name or an address, or None."""
    if not name:
        return f"{kind} is empty"
    if len(name) > NAME_CHARS_MAX:
        return f"{kind} {shown(name)} has {len(name)} characters, allowed 1 to {NAME_CHARS_MAX}"
    if not name.isprintable() or name != name.strip():
        return f"{kind} {shown(name)} has blanks at its ends or characters that cannot be printed"
    return None


def queues_fault(queues: QueueData, limits: RouteLimits) -> str | None:
    """Say what is wrong with a topic's queues at a broker, or None."""
    most = limits.queues_per_topic_max
    for name, count in (
        ("readQueueNums", queues.read_queue_count),
        ("writeQueueNums", queues.write_queue_count),
    ):
        if not 0 <= count <= most:
            return f"{name} {count}, allowed 0 to {most} (queuesPerTopicMax)"
    if not 0 <= queues.perm <= PERM_MAX:
        return f"perm {queues.perm}, allowed 0 to {PERM_MAX}"
    return None


def shown(text: str) -> str:
    """Return a peer's text so that it can neither break a line nor fill it."""
    plain = "".join(one if one.isprintable() else "?" for one in text[:80])
    return plain + "..." if len(text) > 80 else plain
