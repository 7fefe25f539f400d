"""How much one run of the benchmark measures: the whole of it, a short form, and a check.

In: nothing. Out: the plans. Rules:

1. WHOLE is for the page docs/performance.md and takes about thirteen minutes on a quiet machine.
2. SHORT answers in four minutes whether the aims are met, beside an original, and no more.
3. QUICK shows that every part runs; its figures are worth nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import (
    client_kinds,
    delays,
    idle,
    in_process,
    lateness,
    many_messages,
    many_queues,
    store_bench,
)
from benchmarks.client_kinds import ClientPlan
from benchmarks.lateness import LatePlan
from benchmarks.loads import AIMED_LOADS, LOADS, QUICK_LOADS, SYNC_LOADS, Load
from benchmarks.store_bench import StorePlan


@dataclass(frozen=True, slots=True)
class CorePlan:
    """Repetitions in process, and how long each is."""

    repetitions: int
    repetition_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. What is None or 0 is left out."""

    name: str
    loads: Sequence[Load]
    sync_loads: Sequence[Load]
    rounds: int
    starts: int
    quiet_limit_s: float
    warm_up_s: float
    has_bare: bool
    core: CorePlan | None
    store: StorePlan | None
    queues: int
    messages: int
    bursts: int
    burst_s: float
    late: LatePlan | None
    connections: int
    silence_s: float
    clients: ClientPlan


WHOLE = Plan(
    name="whole",
    loads=LOADS,
    sync_loads=SYNC_LOADS,
    rounds=3,
    starts=5,
    quiet_limit_s=10.0,
    warm_up_s=20.0,
    has_bare=True,
    core=CorePlan(in_process.REPETITIONS, in_process.REPETITION_S),
    store=store_bench.WHOLE,
    queues=many_queues.QUEUE_COUNT,
    messages=many_messages.MESSAGE_COUNT,
    bursts=2,
    burst_s=delays.BURST_S,
    late=lateness.WHOLE,
    connections=idle.CONNECTION_COUNT,
    silence_s=idle.SILENCE_S,
    clients=client_kinds.WHOLE,
)
SHORT = Plan(
    name="short",
    loads=AIMED_LOADS,
    sync_loads=(),
    rounds=3,
    starts=3,
    quiet_limit_s=2.0,
    warm_up_s=20.0,
    has_bare=False,
    core=None,
    store=None,
    queues=0,
    messages=0,
    bursts=0,
    burst_s=0.0,
    late=None,
    connections=0,
    silence_s=0.0,
    clients=client_kinds.SHORT,
)
QUICK = Plan(
    name="quick: these figures are worth nothing",
    loads=QUICK_LOADS,
    sync_loads=SYNC_LOADS[:1],
    rounds=1,
    starts=1,
    quiet_limit_s=0.0,
    warm_up_s=3.0,
    has_bare=True,
    core=CorePlan(2, 0.02),
    store=store_bench.QUICK,
    queues=80,
    messages=2_000,
    bursts=1,
    burst_s=0.4,
    late=lateness.QUICK,
    connections=50,
    silence_s=0.5,
    clients=client_kinds.QUICK,
)
