"""The tables of docs/performance.md and of the README, both made from the run in docs/figures.json.

In: a report of a whole run. Out: `docs/figures.json`, and the pages with new tables;
`python -m benchmarks.page` makes the pages anew from the file. Rules:

1. A table is known by its first line; everything else on a page is written by hand and kept.
2. A table that a page lacks is an error, and then nothing is written: all figures are of one run.
3. Nobody writes a figure into these tables by hand: tests/docs/test_figures.py compares.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.client_figures import ClientRow, row_of, to_java
from benchmarks.client_kinds import ASYNCIO, JAVA, UVLOOP
from benchmarks.lateness import Spread
from benchmarks.report import Report, Row
from benchmarks.servers import BARE, ORIGINAL, OURS, ROOT

PAGE = ROOT / "docs" / "performance.md"
README = ROOT / "README.md"
RUN = ROOT / "docs" / "figures.json"
README_LOADS = ("send, 4 x 64, 1 KB", "send, 64 x 1, 1 KB", "pull of 32, 4 x 4, 1 KB")
README_CLIENTS = ("sends, 256 in flight", "push consumer, async handler")


class PageUnlike(Exception):
    """The page lacks a table that is to be replaced."""


def keep_run(report: Report, path: Path = RUN) -> None:
    """Write the run from which the pages are made."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


def read_run(path: Path = RUN) -> Report:
    """Return the run from which the pages are made."""
    return msgspec.json.decode(path.read_bytes(), type=Report)


def write_pages(report: Report, page: Path = PAGE, readme: Path = README) -> None:
    """Replace the tables of the page and of the README."""
    texts = {
        page: with_tables(page.read_text(encoding="utf-8"), tables(report)),
        readme: with_tables(readme.read_text(encoding="utf-8"), [readme_table(report)]),
    }
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")


def with_tables(text: str, new: Sequence[Sequence[str]]) -> str:
    """Return the text with each table in the place of the one with the same first line."""
    for table in new:
        text = replace_table(text, table)
    return text


def readme_table(report: Report) -> list[str]:
    """Return the few figures that the README shows."""
    rows: list[tuple[str, ...]] = []
    for load in README_LOADS:
        ours, original = _row(report, load, OURS), _row(report, load, ORIGINAL)
        if ours is not None and original is not None:
            rows.append(
                _beside(
                    load,
                    ours.figures.server_us_per_message,
                    original.figures.server_us_per_message,
                )
            )
    for kind in README_CLIENTS:
        client, java = (row_of(report.clients.rows, kind, name) for name in (ASYNCIO, JAVA))
        if client is not None and java is not None:
            us = client.figures.us_per_message, java.figures.us_per_message
            rows.append(_beside(f"the client: {kind}", *us))
    rows.append(("from start to ready", f"{report.start.median_s:.1f} s", "", ""))
    rows.append(("resident memory when idle", f"{report.start.resident_mb:.0f} MB", "", ""))
    return table_lines(("CPU per message", "OrbitMQ", "RocketMQ 4.9.7 in Java", "ratio"), rows)


def _beside(name: str, ours_us: float, original_us: float) -> tuple[str, ...]:
    ratio = f"{ours_us / original_us:.2f}" if original_us else ""
    return (name, f"{ours_us:.1f} µs", f"{original_us:.1f} µs", ratio)


def replace_table(text: str, table: Sequence[str]) -> str:
    """Return the text with the table in the place of the one with the same first line."""
    lines = text.splitlines()
    if table[0] not in lines:
        raise PageUnlike(f"the page has no table that begins with {table[0]!r}; add its head")
    begin = end = lines.index(table[0])
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    return "\n".join([*lines[:begin], *table, *lines[end:]]) + "\n"


def tables(report: Report) -> list[list[str]]:
    """Return every table of the page, as lines."""
    return [
        table_lines(("this run", "is"), _run_rows(report)),
        table_lines(("aim, plain Python", "at most", "this run", "so"), _aim_rows(report)),
        table_lines(
            ("load", BARE, "OrbitMQ", ORIGINAL, "to bare", "to original"),
            [_load_cells(report, load) for load in _loads(report)],
        ),
        table_lines(
            ("latency", "OrbitMQ, half", "99 %", f"{ORIGINAL}, half", "99 %"),
            [_latency_cells(report, load) for load in _loads(report)],
        ),
        table_lines(("delayed messages", "delivered", "CPU each", "of"), _delivery_rows(report)),
        table_lines(
            ("lateness under load", "half", "99 %", "greatest", "at a consumer", "of", "beside"),
            _lateness_rows(report),
        ),
        table_lines(
            ("idle connections", "number", "memory before", "with them", "a heartbeat", "silent"),
            _idle_rows(report),
        ),
        table_lines(
            ("client, 1 KB", ASYNCIO, UVLOOP, JAVA, "asyncio to Java", "uvloop to Java"),
            [_client_cells(report.clients.rows, kind) for kind in _client_kinds(report)],
        ),
        table_lines(
            ("in process, 16 frames a read", "a message", "a request"),
            [
                (one.name, f"{one.us_per_message:.2f} µs", f"{one.us_per_request:.1f} µs")
                for one in report.core
            ],
        ),
        table_lines(
            ("task of the store", "OrbitMQ", BARE, "to bare"),
            [
                (one.name, f"{one.us:.2f} µs", f"{one.bare_us:.2f} µs", f"{one.ratio:.2f}")
                for one in report.store
            ],
        ),
        table_lines(
            ("a large store", "CPU", "resident memory"),
            [(one.name, f"{one.cpu_s:.2f} s", f"{one.memory_mb:.0f} MB") for one in report.many],
        ),
    ]


def table_lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: the first column is text, the others are figures."""
    marks = ["---", *("---:" for _ in head[1:])]
    return [_line(head), "|" + "|".join(marks) + "|", *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _run_rows(report: Report) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in report.machine.items()]


def _aim_rows(report: Report) -> list[tuple[str, ...]]:
    return [
        (
            aim.name,
            f"{aim.limit:g}{aim.unit}",
            "" if aim.found is None else f"**{aim.found:.2f}**{aim.unit}",
            aim.verdict,
        )
        for aim in report.aims()
    ]


def _loads(report: Report) -> list[str]:
    return list(dict.fromkeys(row.load for row in report.rows))


def _row(report: Report, load: str, server: str) -> Row | None:
    return next((row for row in report.rows if (row.load, row.server) == (load, server)), None)


def _load_cells(report: Report, load: str) -> tuple[str, ...]:
    bare, ours, original = (_row(report, load, name) for name in (BARE, OURS, ORIGINAL))
    ratios = (ours and report.ratio(ours, base) for base in (BARE, ORIGINAL))
    return (
        load,
        f"{bare.figures.server_us_per_message:.3f} µs" if bare else "",
        _cost(ours),
        _cost(original),
        *(f"{ratio:.2f}" if ratio else "" for ratio in ratios),
    )


def _cost(row: Row | None) -> str:
    if row is None:
        return ""
    figures = row.figures
    return f"{figures.server_us_per_message:.3f} µs · {figures.messages_per_s:,.0f}/s"


def _latency_cells(report: Report, load: str) -> tuple[str, ...]:
    cells = [load]
    for server in (OURS, ORIGINAL):
        row = _row(report, load, server)
        us = (row.figures.p50_us, row.figures.p99_us) if row else ()
        cells += [f"{one / 1e3:.2f} ms" for one in us] or ["", ""]
    return tuple(cells)


def _delivery_rows(report: Report) -> list[tuple[str, ...]]:
    return [
        (one.server, f"{one.per_s:,.0f}/s", f"{one.us_per_message:.2f} µs", f"{one.count:,}")
        for one in report.deliveries
    ]


def _lateness_rows(report: Report) -> list[tuple[str, ...]]:
    return [
        (
            one.server,
            *_spread(one.by_records),
            " · ".join(_spread(one.by_consumer)),
            f"{one.count:,}",
            f"{one.load_per_s:,.0f}/s",
        )
        for one in report.lateness
    ]


def _spread(times: Spread) -> tuple[str, ...]:
    return tuple(f"{ms:.0f} ms" for ms in (times.half_ms, times.most_ms, times.greatest_ms))


def _idle_rows(report: Report) -> list[tuple[str, ...]]:
    return [
        (
            one.server,
            f"{one.count:,}",
            f"{one.before_mb:.0f} MB",
            f"{one.after_mb:.0f} MB",
            f"{one.heartbeat_us:.1f} µs",
            f"{one.silent_cores:.3f} cores",
        )
        for one in report.idle
    ]


def _client_kinds(report: Report) -> list[str]:
    return list(dict.fromkeys(row.kind for row in report.clients.rows))


def _client_cells(rows: Sequence[ClientRow], kind: str) -> tuple[str, ...]:
    found = [row_of(rows, kind, client) for client in (ASYNCIO, UVLOOP, JAVA)]
    costs = [
        f"{row.figures.us_per_message:.1f} µs · {row.figures.messages_per_s:,.0f}/s" if row else ""
        for row in found
    ]
    ratios = [to_java(rows, row) if row else None for row in found[:2]]
    return (kind, *costs, *(f"{ratio:.2f}" if ratio else "" for ratio in ratios))


if __name__ == "__main__":
    write_pages(read_run())
