"""The benchmark programme runs end to end in a tiny form, and does not take failures for speed.

In: `python -m benchmarks`, its parts, and a server that answers wrongly. Out: a failure when the
table, a ratio or a check of the generator has gone. Figures themselves are not judged here: other
processes may use the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as programme
from benchmarks import client_kinds, client_runs, in_process, lateness, loads, page, plan, servers
from benchmarks.client_figures import ClientFigures, ClientRow, Clients
from benchmarks.client_kinds import ASYNCIO, JAVA, UVLOOP
from benchmarks.delays import Delivery
from benchmarks.embedded_starts import EmbeddedStarts
from benchmarks.idle import Idle
from benchmarks.lateness import Lateness, Spread
from benchmarks.loads import Figures, Generator, LoadFailed, build_generator, read_figures
from benchmarks.many_queues import Cost
from benchmarks.report import Report, Row, Start, to_json, to_text
from benchmarks.rounds import typical
from benchmarks.servers import BARE, ORIGINAL, OURS, Server, ServerFailed
from benchmarks.store_bench import StoreFigures
from tests.must_run import cannot

ROOT = Path(__file__).parent.parent
LINE = (
    "send  c=4   w=64   body=1024 req/s   308578 msg/s    308578  srvCPU/req   2.95us "
    "/msg  2.949us (srv  91%) lgCPU/req  0.66us  lat us p50 696 p99 4325 p99.9 5439 max 7930\n"
)


def figures(server_us: float, others_cores: float = 0.0) -> Figures:
    return Figures(1000.0, 1000.0, server_us, 1.0, 100.0, 200.0, others_cores)


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    """The load generator, built anew; without gcc the test is skipped or fails."""
    if shutil.which("gcc") is None:
        cannot("`gcc` is not installed; install it to run the benchmark")
    return Generator(build_generator(tmp_path_factory.mktemp("build") / "loadgen"), None, 0.1)


@contextmanager
def constant_server(answer: bytes) -> Iterator[Server]:
    """A server that gives its first peer one answer and then listens until the peer goes."""

    def serve() -> None:
        connection, _ = listener.accept()
        # The peer is meant to go in the middle of its talk.
        with connection, suppress(ConnectionError):
            connection.recv(1 << 20)
            connection.sendall(answer)
            while connection.recv(1 << 20):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Server("wrong", listener.getsockname()[1], (os.getpid(),), 0.0)
        thread.join(10)


def answer_frame(header: bytes, body: bytes = b"") -> bytes:
    length = 4 + len(header) + len(body)
    return length.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


@pytest.mark.nightly("bench")
@pytest.mark.timeout(180)
def test_the_quick_form_prints_the_table_and_writes_json(
    generator: Generator, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--no-original"]
    command += ["--seconds", "0.6", "--json", str(tmp_path / "report.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    rows = {(row["load"], row["server"]): row for row in report["rows"]}
    expected = [
        (load.name, name)
        for load in (*plan.QUICK.loads, *plan.QUICK.sync_loads)
        for name in (BARE, OURS)
        if name == OURS or load.aim is not None
    ]
    assert list(rows) == expected
    for (load, server), row in rows.items():
        assert row["messages_per_s"] > 0, (load, server)
        assert any(load in line and server in line for line in done.stdout.splitlines())
    assert len(report["core"]) == 5
    assert len(report["store"]) == 14
    assert all(one["us"] > 0 and one["to_bare"] > 0 for one in report["store"])
    assert any(cost["name"] == "open after a kill" for cost in report["many"])
    assert any(cost["name"] == "after 2,000 messages" for cost in report["many"])
    assert report["start"]["ready_s"][0] > 0
    assert report["start"]["resident_mb"] > 1
    assert "start to ready line" in done.stdout
    assert report["embedded"]["with_imports_ms"] > report["embedded"]["first_ms"] > 0
    assert report["embedded"]["again_ms"] > 0
    assert "broker for tests: up in " in done.stdout
    (delivery,) = report["deliveries"]
    assert delivery["server"] == OURS
    assert delivery["count"] > 0
    assert delivery["per_s"] > 0
    (late,) = report["lateness"]
    assert (late["server"], late["count"]) == (OURS, lateness.QUICK.count)
    assert 0 <= late["by_records"]["half_ms"] <= late["by_records"]["greatest_ms"]
    assert late["by_consumer"]["greatest_ms"] >= late["by_records"]["half_ms"]
    (idle,) = report["idle"]
    assert (idle["server"], idle["count"]) == (OURS, plan.QUICK.connections)
    assert report["machine"]["form"].startswith("quick")
    clients = [(row["kind"], row["client"]) for row in report["clients"]]
    assert clients == [
        (kind.name, loop)
        for kind in client_kinds.KINDS
        for loop in ("asyncio", "uvloop")
        if loop in kind.loops
    ]
    assert all(row["figures"]["messages_per_s"] > 0 for row in report["clients"])


def test_the_loads_are_those_of_the_aims_and_more() -> None:
    aims = {load.name: load.aim for load in plan.SHORT.loads}
    assert aims == {
        "send, 4 x 64, 1 KB": 0.4,
        "pull of 32, 4 x 4, 1 KB": 0.6,
        "send, 64 x 1, 1 KB": 0.5,
    }
    whole = [load.name for load in plan.WHOLE.loads]
    for connections in (1, 16, 64):
        assert f"send, {connections} x 1, 1 KB" in whole
        assert f"pull of 32, {connections} x 1, 1 KB" in whole
    assert {"batch of 32, 4 x 4, 1 KB", "SQL pull of 32, 4 x 4, 1 KB"} <= set(whole)
    assert [load.is_sync for load in plan.WHOLE.sync_loads] == [True, True]
    assert plan.WHOLE.connections == 5_000
    aims = {kind.name: kind.aim_us for kind in plan.SHORT.clients.kinds}
    assert aims == {"sends, 256 in flight": 25.0, "push consumer, async handler": 15.0}


def test_the_page_is_only_written_from_a_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    for other in ("--short", "--quick", "--no-original"):
        with pytest.raises(SystemExit):
            programme.main(["--write", other])
        assert "--write needs a whole run" in capsys.readouterr().err


@pytest.mark.parametrize(
    "answer",
    [
        answer_frame(b'{"code":14,"remark":"the disk is full"}'),
        answer_frame(b'{"code":10}'),
        answer_frame(b'{"remark":"no code"}'),
        b"\0\0\0\2\0\0",
        b"",
    ],
    ids=["refused", "code 10", "no code", "no header", "silence"],
)
def test_a_wrong_answer_ends_a_run_instead_of_counting(generator: Generator, answer: bytes) -> None:
    with constant_server(answer) as server, pytest.raises(LoadFailed, match=r"wrong, send, 4 x 64"):
        generator.run(server, loads.FIRST, 0, 0.0)


@pytest.mark.parametrize(
    "body",
    [b"", bytes(88), (88).to_bytes(4, "big") + bytes(84)],
    ids=["empty", "zeros", "no magic"],
)
def test_a_pull_without_whole_records_ends_a_run(generator: Generator, body: bytes) -> None:
    answer = answer_frame(b'{"code":0}', body)
    with constant_server(answer) as server, pytest.raises(LoadFailed, match="bad response"):
        generator.run(server, loads.PULL, 1000, 0.0)


def test_the_generator_is_built_again_only_when_its_source_is_newer(
    generator: Generator, tmp_path: Path
) -> None:
    program = tmp_path / "loadgen"
    shutil.copy(generator.program, program)
    kept = program.stat().st_ino
    assert build_generator(program).stat().st_ino == kept
    os.utime(program, (1, 1))
    assert build_generator(program).stat().st_ino != kept


def test_a_server_that_does_not_start_is_shown_with_its_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('the port is taken')"]
    with (
        pytest.raises(ServerFailed, match=r"broken ended before(?s:.*)the port is taken"),
        servers._started("broken", command, tmp_path / "broken", None),
    ):
        pass


def test_the_line_of_the_generator_is_read() -> None:
    assert read_figures(LINE, 0.1) == Figures(308578, 308578, 2.949, 0.66, 696, 4325, 0.1)
    with pytest.raises(LoadFailed, match="something else"):
        read_figures("something else", 0.0)


def test_pulls_stay_below_what_the_first_run_filled() -> None:
    assert loads.pull_end_after(figures(1.0), 4.0) == 900
    assert loads.pull_end_after(figures(1.0), 0.001) == loads.PULL_COUNT
    assert loads.pull_end_after(figures(1.0), 1e6) == loads.PULL_OFFSET_MAX


def test_disturbed_rounds_count_only_when_there_is_no_other() -> None:
    rounds = [figures(9.0, 1.5), figures(3.0), figures(2.0), figures(4.0)]
    assert typical(rounds) == figures(3.0)
    assert typical(rounds[:1]) == figures(9.0, 1.5)


def test_lateness_is_half_99_percent_and_the_greatest() -> None:
    assert lateness.spread([7.0]) == Spread(7, 7, 7)
    assert lateness.spread(list(range(100, -1, -1))) == Spread(50, 99, 100)
    assert lateness.spread(list(range(1, 201))) == Spread(100, 199, 200)
    assert lateness.WHOLE.count == 3_000
    assert lateness.WHOLE.arrival_s < 18


def test_a_delayed_message_that_is_missing_double_or_early_ends_the_run() -> None:
    server, due_ms = Server("wrong", 0, (), 0.0), {b"a": 1_000, b"b": 1_001}
    assert lateness.late_ms(server, due_ms, [(b"b", 1_001), (b"a", 1_007)]) == [0, 7]
    for came in ([(b"a", 1_000)], [(b"a", 1_000), (b"b", 1_001), (b"a", 1_002)]):
        with pytest.raises(LoadFailed, match="not every delayed message came once"):
            lateness.late_ms(server, due_ms, came)
    with pytest.raises(LoadFailed, match="1 ms early"):
        lateness.late_ms(server, due_ms, [(b"a", 1_000), (b"b", 1_000)])


def small_report() -> Report:
    rows = [
        Row("send", BARE, figures(2.0), 0.4),
        Row("send", OURS, figures(6.0, 0.7), 0.4),
        Row("send", ORIGINAL, figures(20.0), 0.4),
        Row("pull", OURS, figures(1.0)),
    ]
    return Report(
        {"cores": 2},
        Start((0.3, 0.2, 1.4, 1.2, 1.1), 31.5),
        [in_process.CoreFigures("send, 1 KB", 5.5, 5.5)],
        rows,
        [StoreFigures("append, 16 a turn", 4.0, 2.0)],
        [Cost("open after a kill", 2.0, 1.5, 99.0)],
        [Delivery(OURS, 50_000, 25_000.0, 12.5, 0.0)],
        [Idle(OURS, 5_000, 30.0, 80.0, 25.0, 0.01)],
        [
            Lateness(OURS, 3_000, Spread(1, 8, 40), Spread(2, 9.4, 51), 90_000.0, 0.1),
            Lateness(ORIGINAL, 3_000, Spread(60, 99, 200), Spread(61, 99, 210), 70_000.0, 0.1),
        ],
        Clients(
            [
                ClientRow("sends", ASYNCIO, ClientFigures(50_000.0, 20.0, 0.0), 25.0),
                ClientRow("sends", JAVA, ClientFigures(80_000.0, 16.0, 0.0)),
                ClientRow("push", UVLOOP, ClientFigures(60_000.0, 16.5, 0.7), 15.0),
            ]
        ),
        EmbeddedStarts(with_imports_ms=301.0, first_ms=30.0, again_ms=20.0),
    )


def test_the_report_shows_ratios_and_marks_disturbed_rows() -> None:
    report = small_report()
    text = to_text(report).splitlines()
    ours = next(line.split() for line in text if line.startswith(f"send  {OURS}"))
    assert ours[-3:] == ["3.00", "0.30", "0.70*"]
    assert text[-1].startswith("* others used")
    assert next(line.split() for line in text if line.startswith("pull"))[-3:] == ["-", "-", "0.00"]
    append = next(line.split() for line in text if "append, 16 a turn" in line)
    assert append[-1] == "2.00"
    opened = next(line.split() for line in text if "open after a kill" in line)
    assert opened[-2:] == ["99.0", "MB"]
    whole = "\n".join(text)
    assert "1.10 s (median of 5, least 0.20); idle: 31.5 MB" in whole
    assert "up in 20 ms, the first of a process in 30 ms, in 301 ms with its imports" in whole
    assert "25,000/s    12.50 us CPU each   of 50,000" in whole
    assert "records: half 1, 99 % 8, greatest 40 ms; consumer: half 2, 99 % 9, greatest 51" in whole
    assert "5,000: 30 -> 80 MB (10.0 KB each), 25.0 us CPU a heartbeat" in whole
    sends = next(line.split() for line in text if "sends" in line and ASYNCIO in line)
    assert sends[2:5] == ["50,000/s", "20.00", "us"]
    assert "to Java   1.25" in whole
    data = json.loads(json.dumps(to_json(report)))
    assert data["rows"][1]["to_original"] == 0.3
    assert [row["to_java"] for row in data["clients"]] == [1.25, None, None]


def test_aims_are_judged_and_say_when_others_disturbed() -> None:
    aims = {aim.name: aim for aim in small_report().aims()}
    assert aims["send: CPU to the original's"].verdict == "met, but others disturbed it"
    assert aims["start to ready line"].verdict == "not met"
    assert aims["memory, idle"].verdict == "met"
    starts = {name: aim.verdict for name, aim in aims.items() if "broker for tests" in name}
    assert list(starts.values()) == ["met", "met", "not met"]
    late = aims["delayed messages beside send, 4 x 64: the latest"]
    assert (late.found, late.limit, late.verdict) == (40, 100, "met")
    assert aims["client, sends, asyncio: CPU"].verdict == "met"
    assert aims["client, push, uvloop: CPU"].verdict == "not met, but others disturbed it"
    alone = Report({}, Start((0.5,), 30.0), rows=[Row("send", OURS, figures(6.0), 0.4)])
    assert alone.aims()[0].verdict == "not measured"


def test_the_page_gets_the_tables_of_a_run_and_keeps_its_words() -> None:
    old = page.PAGE.read_text(encoding="utf-8")
    new = page.with_tables(old, page.tables(small_report()))
    words = [line for line in old.splitlines() if not line.startswith("|")]
    assert [line for line in new.splitlines() if not line.startswith("|")] == words
    assert "| send | 2.000 µs | 6.000 µs · 1,000/s | 20.000 µs · 1,000/s | 3.00 | 0.30 |" in new
    assert "| send: CPU to the original's | 0.4 | **0.30** | met, but others disturbed it |" in new
    assert "| sends | 20.0 µs · 50,000/s |  | 16.0 µs · 80,000/s | 1.25 |  |" in new
    assert "| push |  | 16.5 µs · 60,000/s |  |  |  |" in new
    assert f"| {OURS} | 5,000 | 30 MB | 80 MB | 25.0 µs | 0.010 cores |" in new
    assert f"| {OURS} | 1 ms | 8 ms | 40 ms | 2 ms · 9 ms · 51 ms | 3,000 | 90,000/s |" in new
    for table in page.tables(small_report()):
        assert "\n".join(table) + "\n\n" in new, "whole, and nothing of the old one behind it"


def test_a_page_without_one_of_the_tables_is_left_as_it_is(tmp_path: Path) -> None:
    copy = tmp_path / "performance.md"
    head = page.tables(small_report())[-1][0]
    text = page.PAGE.read_text(encoding="utf-8").replace(head, "| else |")
    copy.write_text(text, encoding="utf-8")
    with pytest.raises(page.PageUnlike, match="a large store"):
        page.write_pages(small_report(), copy, copy)
    assert copy.read_text(encoding="utf-8") == text


def test_the_core_is_measured_on_frames_that_it_handles_itself() -> None:
    found = in_process.measure(repetitions=1, repetition_s=0.001)
    assert [one.name for one in found] == [
        *("send, 1 KB", "send, 100 B", "pull of 32, 1 KB", "pull of 32, 100 B"),
        "send, 1 KB, one frame a read, 64 connections",
    ]
    assert all(one.us_per_request >= one.us_per_message > 0 for one in found)


def test_a_client_that_cannot_send_ends_the_run_with_its_words(tmp_path: Path) -> None:
    nobody = Server("nobody", 9, (os.getpid(),), 0.0, "127.0.0.1:9")
    with (
        client_runs._python(ASYNCIO, nobody, tmp_path, None) as client,
        pytest.raises(LoadFailed, match=r"client asyncio ended(?s:.*)127.0.0.1:9"),
    ):
        client.run("pipelined", "T", 0.1, 0.0)


def test_a_client_that_counted_nothing_is_not_taken_for_a_quick_one(tmp_path: Path) -> None:
    words = "print('ready'); input(); print('0 0.1 0.0'); input()"
    command = [sys.executable, "-uc", words]
    with (
        client_runs._started("idle", command, tmp_path, None) as client,
        pytest.raises(LoadFailed, match=r"the client idle said '0 0.1 0.0"),
    ):
        client.run("push", "T", 100, 0.0)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_java_s_client_is_measured_by_the_same_commands(tmp_path: Path) -> None:
    missing = servers.missing_for_original()
    if missing:
        cannot(f"{' and '.join(missing)} not installed; install it to compare with Java")
    quick = replace(client_kinds.QUICK, loops=())
    rows = client_runs.measure(quick, tmp_path / "c", client_runs.Rounds(1, 0.1, 0.0)).rows
    assert [(row.kind, row.client) for row in rows] == [(k.name, JAVA) for k in client_kinds.KINDS]
    assert all(row.figures.messages_per_s > 0 for row in rows)
    assert {row.aim_us for row in rows} == {None}
