"""How much one run of the benchmark measures: the whole of it, and a check.

In: nothing. Out: the plans. Rules:

1. WHOLE is for the page docs/performance.md and takes at most a quarter of an hour on a quiet
   machine, and 20 GB of disk for a while.
2. QUICK shows that every part runs; its figures are worth nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import client_kinds, delays, idle, lateness, scale
from benchmarks.client_kinds import ClientPlan
from benchmarks.lateness import LatePlan
from benchmarks.loads import ALONE, BATCH, FIRST, LOADS, PULL, SQL, SYNC, SYNC_LOADS, Load


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    name: str
    seconds: float
    """Of one load."""
    rounds: int
    quiet_limit_s: float
    warm_up_s: float
    """Of an original."""
    starts: int
    loads: Sequence[Load]
    sync_loads: Sequence[Load]
    bursts: int
    burst_s: float
    late: LatePlan
    topics: int
    topics_fill_s: float
    connections: int
    silence_s: float
    stall_s: float
    profile_s: float
    clients: ClientPlan


WHOLE = Plan(
    name="whole",
    seconds=1.5,
    rounds=3,
    quiet_limit_s=10.0,
    warm_up_s=20.0,
    starts=5,
    loads=LOADS,
    sync_loads=SYNC_LOADS,
    bursts=2,
    burst_s=delays.BURST_S,
    late=lateness.WHOLE,
    topics=scale.TOPIC_COUNT,
    topics_fill_s=10.0,
    connections=idle.CONNECTION_COUNT,
    silence_s=idle.SILENCE_S,
    stall_s=60.0,
    profile_s=5.0,
    clients=client_kinds.WHOLE,
)
QUICK = Plan(
    name="quick: these figures are worth nothing",
    seconds=1.0,
    rounds=1,
    quiet_limit_s=0.0,
    warm_up_s=3.0,
    starts=1,
    loads=(FIRST, PULL, SQL, ALONE, BATCH),
    sync_loads=(SYNC,),
    bursts=1,
    burst_s=0.4,
    late=lateness.QUICK,
    topics=20,
    topics_fill_s=0.3,
    connections=50,
    silence_s=0.5,
    stall_s=1.0,
    profile_s=1.0,
    clients=client_kinds.QUICK,
)
