"""The benchmark programme runs end to end in a tiny form, and does not take failures for speed.

In: `python -m benchmarks`, its parts, and a server that answers wrongly. Out: a failure when the
table, a ratio or a check of the generator has gone. Figures themselves are not judged here: other
processes may use the machine.
"""

from __future__ import annotations

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

import msgspec
import pytest

from benchmarks import __main__ as programme
from benchmarks import (
    aims,
    client_kinds,
    client_runs,
    in_process,
    lateness,
    loads,
    page,
    peers,
    plan,
    profile,
    running,
    servers,
    stalls,
)
from benchmarks.c_programs import HERE, build
from benchmarks.client import Client
from benchmarks.client_figures import ClientFigures, ClientRow
from benchmarks.client_kinds import ASYNCIO, JAVA, UVLOOP
from benchmarks.delays import Delivery
from benchmarks.embedded_starts import EmbeddedStarts
from benchmarks.idle import Idle
from benchmarks.lateness import Lateness, Spread
from benchmarks.loads import Figures, Generator, LoadFailed, read_figures
from benchmarks.page import Kept
from benchmarks.profile import Profile
from benchmarks.report import Report, Row, Starts
from benchmarks.rounds import Rounds, typical
from benchmarks.scale import Scale
from benchmarks.servers import BARE, NATS, ORIGINAL, OURS, PLAIN, REDIS, Server, ServerFailed
from benchmarks.stalls import Stalls
from benchmarks.tables import tables, to_text
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
    program = tmp_path_factory.mktemp("build") / "loadgen"
    return Generator(build("loadgen", program), None, 0.1)


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
@pytest.mark.timeout(600)
def test_the_quick_form_measures_every_part_and_prints_it(
    generator: Generator, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--no-original"]
    command += ["--json", str(tmp_path / "report.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = msgspec.json.decode((tmp_path / "report.json").read_bytes(), type=Report)
    assert done.stdout == to_text(tables(report))
    present = {
        BARE,
        OURS,
        *peers.versions(),
        *((PLAIN,) if report.machine["core"] != "plain" else ()),
    }
    asked = [
        (load.name, name)
        for load in (*plan.QUICK.loads, *plan.QUICK.sync_loads)
        for name in (BARE, OURS, PLAIN, REDIS, NATS)
        if name in load.servers and name in present
    ]
    assert [(row.load, row.server) for row in report.rows] == asked
    assert all(row.figures.messages_per_s > 0 for row in report.rows)
    check_the_parts(report)
    assert len(report.clients) == sum(len(kind.loops) for kind in client_kinds.KINDS)
    assert all(row.figures.messages_per_s > 0 for row in report.clients)


def check_the_parts(report: Report) -> None:
    assert str(report.machine["form"]).startswith("quick")
    assert report.starts
    assert report.starts.ready_s[0] > 0 < report.starts.resident_mb
    assert report.embedded
    assert report.embedded.with_imports_ms > report.embedded.first_ms > 0
    (delivery,) = report.deliveries
    assert delivery.server == OURS
    assert delivery.count > 0 < delivery.per_s
    late = report.lateness
    assert late
    assert (late.server, late.count) == (OURS, lateness.QUICK.count)
    assert 0 <= late.by_records.half_ms <= late.by_records.greatest_ms
    assert late.by_consumer.greatest_ms >= late.by_records.half_ms
    assert report.scale
    assert report.scale.topic_count == plan.QUICK.topics
    assert report.scale.one.messages_per_s > 0 < report.scale.many.messages_per_s
    assert report.idle
    assert report.idle.count == plan.QUICK.connections
    assert report.idle.alone.messages_per_s > 0 < report.idle.beside.messages_per_s
    assert report.stalls
    assert report.stalls.longest_ms >= report.stalls.longest_own_ms > 0
    assert [one.load for one in report.profiles] == [loads.FIRST.name, loads.ALONE.name]
    assert all(one.python and one.us_per_message > 0 for one in report.profiles)
    if shutil.which("perf"):
        assert all(one.compiled for one in report.profiles)


@pytest.mark.timeout(60)
def test_the_bare_server_stores_what_the_generator_sends(
    generator: Generator, tmp_path: Path
) -> None:
    """A limit that did less than it says would make every ratio look worse than it is."""
    generator = replace(generator, seconds=1.0)  # a starved machine answers nothing in less
    with servers.bare(tmp_path / "bare", None) as server:
        one_each = generator.run(server, replace(loads.FIRST, connections=2, window=2))
        generator.run(server, loads.BATCH)
        pulls = generator.run(server, loads.PULL, 64)
        with Client(server.port) as client:
            records = client.pull("any topic", 1, 0, 32)
    assert one_each.messages_per_s > 0
    assert pulls.messages_per_s == pytest.approx(32 * pulls.requests_per_s, rel=0.01)
    assert [record.queue_offset for record in records] == list(range(32))
    assert all(record.body == b"x" * 1024 for record in records)
    assert {record.topic for record in records} == {loads.TOPIC}
    assert all(b"TAGS\x01TagA\x02" in record.properties for record in records)


def test_the_loads_are_those_of_the_aims() -> None:
    names = {load.name for load in (*plan.WHOLE.loads, *plan.WHOLE.sync_loads)}
    assert {aim.load.name for aim in aims.LOAD_AIMS} <= names
    for aim in aims.LOAD_AIMS:
        assert {aim.base, aim.server} <= set(aim.load.servers), aim
    assert {kind.name for kind in plan.WHOLE.clients.kinds if kind.aim} == {
        "sends, 256 in flight",
        "push consumer, async handler",
    }
    assert (plan.WHOLE.topics, plan.WHOLE.connections, plan.WHOLE.stall_s) == (10_000, 5_000, 60)


def test_old_messages_stay_while_pulls_are_to_come() -> None:
    removals = [running.may_remove(loads.LOADS, number) for number in range(len(loads.LOADS))]
    last = loads.LOADS.index(loads.SQL)
    assert removals == [number >= last for number in range(len(loads.LOADS))]


def test_the_parts_that_can_be_chosen_are_those_of_a_run(generator: Generator) -> None:
    run = running.Run(plan.QUICK, generator, None, frozenset(), [], [], Rounds(1, 0.0), Report())
    assert tuple(run.parts) == programme.PARTS


def test_the_pages_are_only_written_from_a_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    for other in (["--quick"], ["--no-original"], ["--only", "loads"], ["--load", "64"]):
        with pytest.raises(SystemExit):
            programme.main(["--write", *other])
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
        generator.run(server, loads.FIRST)


@pytest.mark.parametrize(
    "body",
    [b"", bytes(88), (88).to_bytes(4, "big") + bytes(84)],
    ids=["empty", "zeros", "no magic"],
)
def test_a_pull_without_whole_records_ends_a_run(generator: Generator, body: bytes) -> None:
    answer = answer_frame(b'{"code":0}', body)
    with constant_server(answer) as server, pytest.raises(LoadFailed, match="bad response"):
        generator.run(server, loads.PULL, 1000)


def test_a_program_is_built_again_only_when_a_source_is_newer(
    generator: Generator, tmp_path: Path
) -> None:
    program = tmp_path / "loadgen"
    shutil.copy(generator.program, program)
    kept = program.stat().st_ino
    assert build("loadgen", program).stat().st_ino == kept
    os.utime(program, (1, 1))
    assert build("loadgen", program).stat().st_ino != kept


def test_programs_in_c_are_compiled_without_a_warning(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        cannot("`gcc` is not installed; install it to run the benchmark")
    for source in HERE.glob("*.c"):
        command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(tmp_path / source.stem)]
        done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


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
    first = loads.FIRST.name
    rows = [
        Row(first, BARE, figures(2.0)),
        Row(first, OURS, figures(6.0, 0.7)),
        Row(first, REDIS, replace(figures(4.0), messages_per_s=500.0)),
        Row(first, ORIGINAL, figures(20.0)),
        Row(loads.PULL.name, OURS, figures(1.0)),
    ]
    return Report(
        {"core": "plain"},
        rows,
        [Delivery(OURS, 50_000, 25_000.0, 12.5, 0.0), Delivery(ORIGINAL, 50_000, 9e4, 10.0, 0.0)],
        Lateness(OURS, 3_000, Spread(1, 8, 40), Spread(2, 9.4, 51), 90_000.0, 0.1),
        Scale(10_000, figures(5.0), figures(10.0)),
        Idle(5_000, 10.0, 25.0, 0.01, figures(5.0), figures(5.25)),
        Stalls(60.0, 90_000.0, 4.5, 30.25, 0),
        [Profile(first, 6.0, [("core.take", 60.0)], [("memcpy (libc)", 7.5), ("crc (it)", 5.0)])],
        [
            ClientRow("sends, 256 in flight", ASYNCIO, ClientFigures(50_000.0, 20.0, 0.0)),
            ClientRow("sends, 256 in flight", JAVA, ClientFigures(80_000.0, 16.0, 0.0)),
            ClientRow("push", UVLOOP, ClientFigures(60_000.0, 16.5, 0.7)),
        ],
        Starts((0.3, 0.2, 1.4, 1.2, 1.1), 31.5),
        EmbeddedStarts(with_imports_ms=301.0, first_ms=30.0, again_ms=20.0),
    )


def test_the_tables_show_costs_and_ratios_of_one_run() -> None:
    made = tables(small_report())
    first = loads.FIRST.name
    assert made["loads"][0][1:] == (BARE, f"{OURS}, plain core", REDIS, ORIGINAL)
    assert made["loads"][1][:3] == (first, "2.00 µs · 1.0 k/s", "6.00 µs · 1.0 k/s")
    assert made["loads"][2] == (loads.PULL.name, "-", "1.00 µs · 1.0 k/s", "-", "-")
    assert made["ratios"][1] == (first, "3.00", "1.50", "0.30")
    assert made["latency"][1][1] == "100 µs · 200 µs"
    assert made["readme"][1:4] == [
        (first, "6.0 µs", "20.0 µs", "0.30"),
        ("delivery of a delayed message", "12.5 µs", "10.0 µs", "1.25"),
        ("the client: sends, 256 in flight", "20.0 µs", "16.0 µs", "1.25"),
    ]
    assert ("resident memory when idle", "32 MB", "", "") in made["readme"]
    assert made["clients"][1][-2:] == ("1.25", "-")
    assert made["profile 4x64"][1:] == [
        ("`core.take`", "60.0", "`memcpy (libc)`", "7.5"),
        ("", "", "`crc (it)`", "5.0"),
    ]
    work = dict(row for row in made["work"] if len(row) == 2)
    assert work["the loop's longest stall in 60 s at 90.0 k/s"] == "4.5 ms"
    assert work["the same to 10,000 topics at random"] == "10.00 µs · 1.0 k/s"


def test_aims_are_judged_and_say_when_others_disturbed() -> None:
    found = {aim.name: aim for aim in aims.aims(small_report())}
    first = loads.FIRST.name
    verdicts = {
        f"{first}: CPU, to {BARE}": "not met, but others disturbed it",
        f"{first}: messages a second, to {REDIS}": "not met, but others disturbed it",
        f"{first}: messages a second, to {NATS}": "not measured",
        f"{first}, plain core: CPU, to {ORIGINAL}": "met, but others disturbed it",
        "delivery of delayed messages: CPU, to the original": "not met",
        "client, sends, 256 in flight: CPU, to the Java client": "not met",
        "10,000 topics of 8 queues: CPU, to one topic": "not met",
        "5,000 idle connections beside the load: CPU, to none": "met",
        "the longest stall of the loop in 60 s of full load": "met",
        "delayed messages beside full load: the latest": "met",
        "start to ready line": "not met",
        "a start of the broker for tests": "met",
    }
    assert {name: found[name].verdict for name in verdicts} == verdicts
    redis = found[f"{first}: messages a second, to {REDIS}"]
    assert (redis.aimed_at, redis.found) == ("at least 2.5", 2.0)
    assert {aim.verdict for aim in aims.aims(Report())} == {"not measured"}


def test_a_run_is_kept_whole_and_its_tables_fit_the_pages(tmp_path: Path) -> None:
    kept = Kept(small_report(), {"spark run": [("this run of Spark", "is"), ("commit", "abc")]})
    page.keep(kept, tmp_path / "figures.json")
    assert page.read_kept(tmp_path / "figures.json").tables() == kept.tables()
    pages = [shutil.copy(path, tmp_path / path.name) for path in page.PAGES]
    page.write_pages(kept, [Path(path) for path in pages])
    text = (tmp_path / "performance.md").read_text()
    assert f"| {loads.FIRST.name} | 2.00 µs · 1.0 k/s | 6.00 µs · 1.0 k/s |" in text
    assert "| commit | abc |" in text


def test_stalls_of_a_broker_are_told_apart_from_the_machines(tmp_path: Path) -> None:
    file = tmp_path / "stalls.json"
    file.write_text("[[30.0, 1.0], [7.0, 7.0], [6.0, 5.5], [5.0, 5.0]]")
    assert stalls.read(file, 60.0, 9.0) == Stalls(60.0, 9.0, 7.0, 30.0, 2)


def test_a_report_of_perf_is_read() -> None:
    text = (
        "# Overhead  Shared Object         Symbol\n"
        "    20.98%  libpython3.11.so.1.0  [.] _PyObject_Free\n"
        "     1.05%  [kernel.kallsyms]     [k] exc_page_fault  \n"
        "     1.00%  compiled.cpython-311-x86_64-linux-gnu.so"
        "  [.] __pyx_f_7orbitmq_4core_8compiled_take_send.constprop.0\n"
    )
    assert profile.read_perf(text) == [
        ("_PyObject_Free (libpython3)", 20.98),
        ("exc_page_fault (kernel)", 1.05),
        ("take_send (compiled)", 1.0),
    ]


def test_a_profile_takes_connections_and_requests_in_flight() -> None:
    load = profile.read_load("16x1")
    assert (load.connections, load.window) == (16, 1)
    with pytest.raises(SystemExit):
        profile.main(["many"])


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
    rows = client_runs.measure(quick, tmp_path / "c", Rounds(1, 0.0), 0.1)
    assert [(row.kind, row.client) for row in rows] == [(k.name, JAVA) for k in client_kinds.KINDS]
    assert all(row.figures.messages_per_s > 0 for row in rows)
