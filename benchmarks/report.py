"""What the benchmark found, as a table to read and as JSON to keep.

In: figures of the core, of the store, of the start, and of every load on every server. Out: text,
or a value for `json.dump`; the tables of the page are made by page.py. Rule: ratios are of CPU per
message within this run; figures of different runs or machines are not comparable.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from benchmarks.client_figures import Clients, client_lines, to_java
from benchmarks.delays import Delivery
from benchmarks.embedded_starts import EmbeddedStarts, starts_line
from benchmarks.idle import Idle
from benchmarks.in_process import CoreFigures
from benchmarks.lateness import Lateness, line
from benchmarks.loads import Figures
from benchmarks.machine import QUIET_CORES
from benchmarks.many_queues import Cost
from benchmarks.servers import BARE, ORIGINAL, OURS
from benchmarks.store_bench import StoreFigures


@dataclass(frozen=True, slots=True)
class Row:
    """One load on one server."""

    load: str
    server: str
    figures: Figures
    aim: float | None = None
    """The share of the original's CPU per message that ours may cost."""


@dataclass(frozen=True, slots=True)
class Start:
    """How long starts took, and the memory of an idle process."""

    ready_s: tuple[float, ...] = ()
    resident_mb: float = 0.0

    @property
    def median_s(self) -> float:
        """The start in the middle of all."""
        return sorted(self.ready_s)[len(self.ready_s) // 2]


@dataclass(frozen=True, slots=True)
class Aim:
    """What is aimed at, the limit, and what was found; None when that was not measured."""

    name: str
    limit: float
    unit: str
    found: float | None
    is_disturbed: bool = False

    @property
    def verdict(self) -> str:
        """Whether it is met, in a word or two."""
        if self.found is None:
            return "not measured"
        is_met = "met" if self.found <= self.limit else "not met"
        return f"{is_met}, but others disturbed it" if self.is_disturbed else is_met


@dataclass(slots=True)
class Report:
    """Everything one run of the programme measured."""

    machine: dict[str, str | int]
    start: Start = field(default_factory=Start)
    core: Sequence[CoreFigures] = ()
    rows: Sequence[Row] = ()
    store: Sequence[StoreFigures] = ()
    many: Sequence[Cost] = ()
    """Stores with many queues and with many messages."""
    deliveries: Sequence[Delivery] = ()
    idle: Sequence[Idle] = ()
    lateness: Sequence[Lateness] = ()
    clients: Clients = field(default_factory=Clients)
    embedded: EmbeddedStarts | None = None
    """Starts of the broker for tests."""

    def aims(self) -> list[Aim]:
        """Return the aims for plain Python, with what this run says to them."""
        aims = []
        for row in self.rows:
            if row.server == OURS and row.aim is not None:
                beside = [one for one in self.rows if one.load == row.load]
                found, is_disturbed = self.ratio(row, ORIGINAL), any(map(_is_disturbed, beside))
                name = f"{row.load}: CPU to the original's"
                aims.append(Aim(name, row.aim, "", found, is_disturbed))
        for one in self.lateness:
            if one.server == OURS:
                is_disturbed = one.others_cores >= QUIET_CORES
                late_ms = one.by_records.greatest_ms
                aims.append(Aim(LATE_AIM, LATE_AIM_MS, " ms", late_ms, is_disturbed))
        aims += [
            Aim(
                f"client, {row.kind}, {row.client}: CPU",
                row.aim_us,
                " us",
                row.figures.us_per_message,
                row.is_disturbed,
            )
            for row in self.clients.rows
            if row.aim_us is not None
        ]
        aims.append(Aim("start to ready line", READY_AIM_S, " s", self.start.median_s))
        aims.append(Aim("memory, idle", IDLE_AIM_MB, " MB", self.start.resident_mb))
        if self.embedded is not None:
            aims += [
                Aim(f"broker for tests: {name}", EMBEDDED_AIM_MS, " ms", found_ms)
                for name, found_ms in (
                    ("a start", self.embedded.again_ms),
                    ("the first start in a process", self.embedded.first_ms),
                    ("the first start with its imports", self.embedded.with_imports_ms),
                )
            ]
        return aims

    def ratio(self, row: Row, base: str) -> float | None:
        """CPU per message of `row` against `base` under the same load; None without `base`.

        A run can be too short for the kernel's clock and cost nothing; then there is no ratio.
        """
        for other in self.rows:
            base_us = other.figures.server_us_per_message
            if (other.load, other.server) == (row.load, base) and base_us:
                return row.figures.server_us_per_message / base_us
        return None


READY_AIM_S, IDLE_AIM_MB, LATE_AIM_MS = 1.0, 100.0, 100.0
EMBEDDED_AIM_MS = 300.0
LATE_AIM = "delayed messages beside send, 4 x 64: the latest"
_COLUMNS = (
    *("load", "server", "req/s", "msg/s", "CPU us/msg"),
    *("p50 us", "p99 us", "to bare", "to original", "others"),
)


def to_text(report: Report) -> str:
    """The whole report for a terminal."""
    starts, clients = report.start, report.clients.rows
    parts = [
        (", ".join(f"{name} {value}" for name, value in report.machine.items()), []),
        (
            "in process, 16 frames a call (CPU, the least of several repetitions):",
            [_core_line(figures) for figures in report.core],
        ),
        (
            "the store, in process (CPU per message, record or look-up; the least of all rounds):",
            [_store_line(figures) for figures in report.store],
        ),
        (
            "the store with many queues, then with many messages (a process each):",
            [_cost_line(cost) for cost in report.many],
        ),
        (
            f"start to ready line: {starts.median_s:.2f} s (median of {len(starts.ready_s)}, "
            f"least {min(starts.ready_s):.2f}); idle: {starts.resident_mb:.1f} MB resident",
            [],
        ),
        ("" if report.embedded is None else starts_line(report.embedded), []),
        ("delayed messages, all due at once:", [_delivery_line(one) for one in report.deliveries]),
        ("delayed messages under load, lateness:", [line(one) for one in report.lateness]),
        ("idle connections:", [_idle_line(one) for one in report.idle]),
        ("clients (CPU of the client's own process per message):", client_lines(clients)),
        ("loads:", _table(report)),
        ("aims:", [_aim_line(aim) for aim in report.aims()]),
    ]
    lines: list[str] = []
    for head, body in parts:
        if body or (head and not head.endswith(":")):
            lines += [head, *body, ""]
    if any(map(_is_disturbed, report.rows)) or any(row.is_disturbed for row in clients):
        lines += [f"* others used {QUIET_CORES} cores or more: do not rely on these rows", ""]
    return "\n".join(lines[:-1]) + "\n"


def to_json(report: Report) -> dict[str, object]:
    """The whole report as a value for json.dump."""
    return {
        "machine": report.machine,
        "core": [asdict(figures) for figures in report.core],
        "store": [{**asdict(figures), "to_bare": figures.ratio} for figures in report.store],
        "many": [asdict(cost) for cost in report.many],
        "start": asdict(report.start),
        "embedded": None if report.embedded is None else asdict(report.embedded),
        "deliveries": [asdict(one) for one in report.deliveries],
        "lateness": [asdict(one) for one in report.lateness],
        "idle": [{**asdict(one), "kb_each": one.kb_each} for one in report.idle],
        "clients": [
            {**asdict(row), "to_java": to_java(report.clients.rows, row)}
            for row in report.clients.rows
        ],
        "aims": [{**asdict(aim), "verdict": aim.verdict} for aim in report.aims()],
        "rows": [
            {
                "load": row.load,
                "server": row.server,
                **asdict(row.figures),
                "to_bare": report.ratio(row, BARE),
                "to_original": report.ratio(row, ORIGINAL),
            }
            for row in report.rows
        ],
    }


def _core_line(figures: CoreFigures) -> str:
    return (
        f"  {figures.name:<50} {figures.us_per_message:8.3f} us/msg"
        f" {figures.us_per_request:8.2f} us/request"
    )


def _store_line(figures: StoreFigures) -> str:
    return (
        f"  {figures.name:<36} {figures.us:9.3f} us   bare loop {figures.bare_us:8.3f} us"
        f"   to bare {figures.ratio:6.2f}"
    )


def _cost_line(cost: Cost) -> str:
    return (
        f"  {cost.name:<24} {cost.clock_s:7.2f} s {cost.cpu_s:7.2f} s CPU {cost.memory_mb:7.1f} MB"
    )


def _delivery_line(one: Delivery) -> str:
    return (
        f"  {one.server:<16} {one.per_s:10,.0f}/s {one.us_per_message:8.2f} us CPU each"
        f"   of {one.count:,}"
    )


def _idle_line(one: Idle) -> str:
    return (
        f"  {one.server:<16} {one.count:,}: {one.before_mb:.0f} -> {one.after_mb:.0f} MB"
        f" ({one.kb_each:.1f} KB each), {one.heartbeat_us:.1f} us CPU a heartbeat,"
        f" {one.silent_cores:.3f} cores while silent"
    )


def _aim_line(aim: Aim) -> str:
    found = "-" if aim.found is None else f"{aim.found:.2f}{aim.unit}"
    return f"  {aim.name:<52} {found:>9}   at most {aim.limit:g}{aim.unit}: {aim.verdict}"


def _table(report: Report) -> list[str]:
    cells = [_COLUMNS, *(_cells(report, row) for row in report.rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_COLUMNS))]
    lines = [_line(line, widths) for line in cells]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    names = [cell.ljust(width) for cell, width in zip(cells[:2], widths[:2], strict=True)]
    numbers = [cell.rjust(width) for cell, width in zip(cells[2:], widths[2:], strict=True)]
    return "  ".join(names + numbers)


def _cells(report: Report, row: Row) -> tuple[str, ...]:
    figures = row.figures
    ratios = (report.ratio(row, base) for base in (BARE, ORIGINAL))
    return (
        row.load,
        row.server,
        f"{figures.requests_per_s:,.0f}",
        f"{figures.messages_per_s:,.0f}",
        f"{figures.server_us_per_message:.3f}",
        f"{figures.p50_us:,.0f}",
        f"{figures.p99_us:,.0f}",
        *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
        f"{figures.others_cores:.2f}" + ("*" if _is_disturbed(row) else " "),
    )


def _is_disturbed(row: Row) -> bool:
    return row.figures.others_cores >= QUIET_CORES
