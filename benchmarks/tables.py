"""The tables of a report, for the terminal and for the pages.

In: a report. Out: for each table its name and rows of cells, the head first. Rule: what was not
measured has no table, or an empty cell.
"""

from collections.abc import Iterator, Sequence

from benchmarks.aims import aims
from benchmarks.client_figures import ClientRow, row_of, to_java
from benchmarks.client_kinds import ASYNCIO, JAVA, PIPELINED, PUSH, UVLOOP
from benchmarks.loads import BATCH, FIRST, ONE_EACH, PULL, SQL, Figures
from benchmarks.profile import Profile
from benchmarks.report import Report
from benchmarks.servers import BARE, NATS, ORIGINAL, OURS, PLAIN, REDIS

Table = list[tuple[str, ...]]
Tables = dict[str, Table]
SERVERS = (BARE, OURS, PLAIN, REDIS, NATS, ORIGINAL)
README_LOADS = tuple(load.name for load in (FIRST, ONE_EACH, BATCH, PULL, SQL))
README_CLIENTS = (PIPELINED.name, PUSH.name)
EMPTY = "-"


def tables(report: Report) -> Tables:
    """Return every table that the report fills."""
    servers = [name for name in SERVERS if any(row.server == name for row in report.rows)]
    loads = list(dict.fromkeys(row.load for row in report.rows))
    made: Tables = {
        "readme": [("CPU per message", "OrbitMQ", "RocketMQ 4.9.7", "ratio"), *_readme(report)],
        "run": [("this run", "is"), *((name, str(is_)) for name, is_ in report.machine.items())],
        "aims": [("ratio", "aimed at", "this run", "so"), *_aims(report)],
        "loads": [
            ("CPU per message, messages a second", *_heads(report, servers)),
            *((load, *(_cost(report.figures(load, one)) for one in servers)) for load in loads),
        ],
        "ratios": [
            ("OrbitMQ's CPU per message to that of", *_others(servers)),
            *((load, *_ratios(report, load, _others(servers))) for load in loads),
        ],
        "latency": [
            ("half of the answers, 99 % of them, within", *_heads(report, servers)),
            *((load, *(_latency(report.figures(load, one)) for one in servers)) for load in loads),
        ],
        "work": [("other work", "is"), *_work(report)],
        "clients": [
            ("client, 1 KiB", ASYNCIO, UVLOOP, JAVA, "asyncio to Java", "uvloop to Java"),
            *_clients(report.clients),
        ],
    }
    made |= {f"profile {_short(one.load)}": _profile(one) for one in report.profiles}
    return {name: table for name, table in made.items() if len(table) > 1}


def to_text(made: Tables) -> str:
    """Return tables to read in a terminal."""
    return "\n".join("\n".join(_aligned(table)) + "\n" for table in made.values())


def _aligned(table: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        first, *others = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join([first, *others]).rstrip()


def _others(servers: Sequence[str]) -> list[str]:
    return [name for name in servers if name != OURS]


def _heads(report: Report, servers: Sequence[str]) -> list[str]:
    """Return the names of servers, that of OrbitMQ with the core that was measured."""
    ours = f"{OURS}, {report.machine.get('core')} core"
    return [ours if name == OURS else name for name in servers]


# --- the rows ---


def _readme(report: Report) -> Iterator[tuple[str, ...]]:
    for load in README_LOADS:
        ours, original = report.figures(load, OURS), report.figures(load, ORIGINAL)
        if ours and original:
            yield _beside(load, ours.cost_us, original.cost_us)
    costs = {one.server: one.us_per_message for one in report.deliveries}
    if {OURS, ORIGINAL} <= set(costs):
        yield _beside("delivery of a delayed message", costs[OURS], costs[ORIGINAL])
    for kind in README_CLIENTS:
        client, java = (row_of(report.clients, kind, name) for name in (ASYNCIO, JAVA))
        if client and java:
            yield _beside(f"the client: {kind}", client.figures.cost_us, java.figures.cost_us)
    if report.starts:
        yield ("from start to ready", f"{report.starts.median_s:.1f} s", "", "")
        yield ("resident memory when idle", f"{report.starts.resident_mb:.0f} MB", "", "")


def _beside(name: str, ours_us: float, other_us: float) -> tuple[str, ...]:
    return (name, f"{ours_us:.1f} µs", f"{other_us:.1f} µs", _ratio(ours_us, other_us))


def _aims(report: Report) -> Iterator[tuple[str, ...]]:
    for aim in aims(report):
        found = EMPTY if aim.found is None else f"**{aim.found:.2f}**{aim.unit}"
        yield (aim.name, aim.aimed_at, found, aim.verdict)


def _cost(figures: Figures | None) -> str:
    if figures is None:
        return EMPTY
    return f"{figures.cost_us:.2f} µs · {_rate(figures.messages_per_s)}"


def _rate(per_s: float) -> str:
    return f"{per_s / 1e3:,.0f} k/s" if per_s >= 1e5 else f"{per_s / 1e3:,.1f} k/s"


def _ratios(report: Report, load: str, others: Sequence[str]) -> Iterator[str]:
    for other in others:
        found = report.ratio(load, OURS, other)
        yield EMPTY if found is None else f"{found:.2f}"


def _latency(figures: Figures | None) -> str:
    if figures is None:
        return EMPTY
    return f"{_time(figures.p50_us)} · {_time(figures.p99_us)}"


def _time(us: float) -> str:
    return f"{us:.0f} µs" if us < 1_000 else f"{us / 1e3:.1f} ms"


def _work(report: Report) -> Iterator[tuple[str, ...]]:
    for one in report.deliveries:
        is_ = f"{one.us_per_message:.2f} µs · {_rate(one.per_s)}"
        yield (f"delivery of {one.count:,} delayed messages at once, {one.server}", is_)
    if late := report.lateness:
        spread = late.by_records
        times = f"{spread.half_ms:.0f} · {spread.most_ms:.0f} · {spread.greatest_ms:.0f} ms"
        yield (f"lateness of {late.count:,} beside full load: half, 99 %, the latest", times)
    if scale := report.scale:
        yield ("send, 4 x 64, to one topic of 8 queues", _cost(scale.one))
        yield (f"the same to {scale.topic_count:,} topics at random", _cost(scale.many))
    if idle := report.idle:
        yield ("send, 4 x 64, before the idle connections", _cost(idle.alone))
        yield (f"the same beside {idle.count:,} idle connections", _cost(idle.beside))
        yield ("memory of an idle connection", f"{idle.kb_each:.1f} KB")
        yield ("a heartbeat", f"{idle.heartbeat_us:.0f} µs")
        yield (f"CPU while {idle.count:,} connections are silent", f"{idle.silent_cores:.3f} cores")
    yield from _of_the_process(report)


def _of_the_process(report: Report) -> Iterator[tuple[str, ...]]:
    if stalls := report.stalls:
        name = f"the loop's longest stall in {stalls.seconds:g} s at {_rate(stalls.messages_per_s)}"
        yield (name, f"{stalls.longest_own_ms:.1f} ms")
        yield ("the same with what the machine took", f"{stalls.longest_ms:.1f} ms")
        yield ("its own stalls of more than 5 ms", str(stalls.long_count))
    if starts := report.starts:
        yield ("from start to ready", f"{starts.median_s:.2f} s")
        yield ("resident memory when idle", f"{starts.resident_mb:.0f} MB")
    if embedded := report.embedded:
        yield ("a start of the broker for tests", f"{embedded.again_ms:.0f} ms")
        yield ("the first in a process", f"{embedded.first_ms:.0f} ms")
        yield ("the first, with its imports", f"{embedded.with_imports_ms:.0f} ms")


def _clients(rows: Sequence[ClientRow]) -> Iterator[tuple[str, ...]]:
    for kind in dict.fromkeys(row.kind for row in rows):
        found = [row_of(rows, kind, client) for client in (ASYNCIO, UVLOOP, JAVA)]
        costs = [_client_cost(row) for row in found]
        ratios = [to_java(rows, row) if row else None for row in found[:2]]
        yield (kind, *costs, *(EMPTY if ratio is None else f"{ratio:.2f}" for ratio in ratios))


def _client_cost(row: ClientRow | None) -> str:
    if row is None:
        return EMPTY
    return f"{row.figures.cost_us:.1f} µs · {_rate(row.figures.messages_per_s)}"


def _ratio(one: float, other: float) -> str:
    return f"{one / other:.2f}" if other else ""


def _short(load: str) -> str:
    """Return `4x64` of `send, 4 x 64, 1 KiB`."""
    return load.split(", ")[1].replace(" ", "")


def _profile(one: Profile) -> Table:
    """Return both lists side by side; the shorter ends with empty cells."""
    height = max(len(one.python), len(one.compiled))
    columns = [
        [*found, *[("", 0.0)] * (height - len(found))] for found in (one.python, one.compiled)
    ]
    head = ("function", "Python, %", "compiled function", "all threads, %")
    return [head, *(_profile_row(*pair) for pair in zip(*columns, strict=True))]


def _profile_row(left: tuple[str, float], right: tuple[str, float]) -> tuple[str, ...]:
    return tuple(
        cell
        for name, share in (left, right)
        for cell in (f"`{name}`" if name else "", f"{share:.1f}" if name else "")
    )
