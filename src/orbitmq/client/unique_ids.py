"""The unique ids of this process's messages, in the layout of the Java client.

In: the address that ids carry, a clock, chance. Out: one maker per process and address.

Rules:
1. Producers of one process share the maker of their address, so that its counter tells their
   messages apart; the salt tells processes apart that have the same low half of the process id.
2. A process that was forked makes its own.
"""

import os

from orbitmq.wire.message_id import UniqueIds
from orbitmq.world.chance import Chance
from orbitmq.world.clock import local_zone

SALT_RANGE = 2**32

_makers: dict[tuple[int, str], UniqueIds] = {}


def unique_ids(ip: str, chance: Chance) -> UniqueIds:
    """Return this process's maker of ids with an address in them."""
    key = os.getpid(), ip
    maker = _makers.get(key)
    if maker is None:
        maker = _makers[key] = UniqueIds(ip, key[0], chance.below(SALT_RANGE), local_zone())
    return maker
