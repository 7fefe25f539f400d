"""Every example of README and docs is run: servers start, tools end well, settings are taken.

Programs in Python, the shell's guide and the README's first steps have tests of their own beside
this one; what is left is run here, and the first test sees that nothing is in neither.

Not run as they stand:
1. `make TARGET`: `make test` would run itself, the others take minutes. make says what it would do,
   and the program at the end of it is asked for its help.
2. `python -m benchmarks`: the same, and tests/test_bench.py runs all its parts for a moment.
3. `pip install`: what is released is not this source. The extras must exist; a wheel of this source
   is made and installed by tests/spark/test_standalone.py.
4. The lines for a Spark cluster: that test has a master and two workers, makes and sends the
   archive by the settings that the guide shows, and compares them with the guide's lines.
"""

import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq import Admin, Message, Producer
from orbitmq.app.settings import load
from orbitmq.config import BrokerSettings, load_settings, parse_properties
from orbitmq.testing import EmbeddedBroker
from orbitmq.world.files import SystemFiles
from tests.cli.commands import Running, environment, run_command
from tests.docs import test_client_guides, test_readme
from tests.docs.pages import (
    BLOCKS,
    COMMANDS,
    OUTPUT,
    ROOT,
    Block,
    Command,
    beginning_with,
    of_language,
)
from tests.foreign.judged import namesrv_under_test

pytestmark = pytest.mark.timeout(240)  # many processes start, on a machine that may be busy

SHELL_PAGE = "docs/guides/shell.md"
SPARK_PAGES = {
    "docs/start/spark.md",
    *(f"docs/guides/{page}.md" for page in ("spark", "spark-logs", "spark-recipes")),
}
"""Their programs are run by tests/spark/test_docs.py."""
PYTHON_PAGES = {
    *SPARK_PAGES,
    "README.md",
    "docs/guides/testing.md",
    *(f"docs/{page}.md" for page in test_client_guides.PAGES),
}
LANGUAGES = {OUTPUT, "java", "promql", "properties", "python", "sh", "sql", "toml"}
SERVERS = ("orbitmq up", "orbitmq namesrv", "orbitmq broker", "mqbroker", "mqnamesrv")
STORE, APPLICATION = "orbitmq store", "orbitmq run"
GROUP = "orbitmq group create newcomer", "orbitmq group reset newcomer"
MADE = ("make", "python -m benchmarks")
INSTALLS = ("pip install", "env/bin/pip install")
RUN_HERE = (*SERVERS, *GROUP, STORE, APPLICATION, *MADE, *INSTALLS)
ON_A_CLUSTER = "tests/spark/test_standalone.py"
SUBMIT = "spark-submit --master spark://master:7077"
RUN_ELSEWHERE = {
    "python -m venv env": ON_A_CLUSTER,
    "tar -C env -czf env.tar.gz .": ON_A_CLUSTER,
    f"{SUBMIT} --conf spark.pyspark.python=/opt/jobs/bin/python copy_orders.py ...": ON_A_CLUSTER,
    f"{SUBMIT} --archives env.tar.gz#env --conf spark.pyspark.python=./env/bin/python "
    "--conf spark.pyspark.driver.python=env/bin/python copy_orders.py ...": ON_A_CLUSTER,
    "python examples/python/first_message.py": "tests/docs/test_client_guides.py",
    "python replay.py 2026-07-01T08:00:00+00:00 2026-07-01T09:00:00+00:00": (
        "tests/spark/test_docs.py"
    ),
    "mvn -q -f examples/java/pom.xml compile exec:java": "tests/foreign/test_examples.py",
    "cd examples/go && go run .": "tests/foreign/test_examples.py",
    "export NAMESRV_ADDR=127.0.0.1:9876": "tests/docs/test_client_guides.py",
    "curl -s http://127.0.0.1:9100/metrics": "tests/cli/test_up_command.py",
}
ENDING = {"-p", "-m"}
"""Words with which a server prints its settings and ends."""


def test_every_block_is_run_by_a_test_or_marked_as_output() -> None:
    assert len(BLOCKS) > 100
    assert {block.language for block in BLOCKS} <= LANGUAGES
    assert {block.page for block in of_language("python")} <= PYTHON_PAGES
    readme = [line for block in test_readme.SHELL_BLOCKS for line in block.splitlines()]
    run = {*RUN_ELSEWHERE, *readme, *(one.line for one in beginning_with(*RUN_HERE, "mqadmin"))}
    left = [one for one in COMMANDS if one.line not in run and one.page != SHELL_PAGE]
    assert left == []
    for line, test in RUN_ELSEWHERE.items():
        assert line in [command.line for command in COMMANDS], f"no page shows {line} any more"
        assert (ROOT / test).exists()


# --- servers ---


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.namesrv


@pytest.fixture(scope="module")
def lone_namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server that knows no broker: it would refuse a second one of a name."""
    with namesrv_under_test(tmp_path_factory.mktemp("namesrv")) as address:
        yield address


def _here(line: str, namesrv: str) -> list[str]:
    """Return an example's words with addresses, ports and folders that are free on this machine."""
    line = re.sub(r"\b(10\.0\.0\.[12]|127\.0\.0\.1):9876\b", namesrv, line)
    line = line.replace("/var/lib/orbitmq", "data").replace("--metrics-port 9100", "")
    name, *words = shlex.split(line)
    if name != "orbitmq":
        return [f"orbitmq.cli.{name}", *words]
    verb = words[0]
    ports = ["--namesrv-port", "0", "--broker-port", "0"] if verb == "up" else ["--port", "0"]
    return [name, *words, *ports]


def _write_settings(folder: Path) -> None:
    (folder / "conf/2m-noslave").mkdir(parents=True)
    for name in ("broker.conf", "namesrv.properties", "conf/2m-noslave/broker-a.properties"):
        (folder / name).write_text("listenPort=0\n")


@pytest.mark.parametrize(
    "command", [one for one in beginning_with(*SERVERS) if one.page != SHELL_PAGE], ids=str
)
def test_a_server_starts_and_ends_as_shown(
    command: Command, lone_namesrv: str, tmp_path: Path
) -> None:
    _write_settings(tmp_path)
    module, *words = _here(command.line, lone_namesrv)
    if ENDING & set(words):
        done = run_command(module, *words, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "listenPort" in done.stdout
        return
    with Running(module, *words, folder=tmp_path) as running:
        lines = iter(running.line, "")
        said = next((line for line in lines if re.match("ready |.*boot success", line)), None)
        assert said is not None, running.errors.read_text()
        assert running.stop() == 0


# --- tools ---


def test_a_store_is_checked_dumped_and_repaired_as_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ["up", "--namesrv-port", "0", "--broker-port", "0", "--data-dir"]
    for folder, more in (("data", []), ("apart", ["-D", f"storePathCommitLog={log}"])):
        with Running("orbitmq", *words, folder, *more, folder=tmp_path) as running:
            found = re.search(r"namesrv=(\S+)", running.line())
            assert found is not None, running.errors.read_text()
            for topic in ("orders", "FirstTopic"):
                send = ["send", topic, "hello", "--key", "42", "--namesrv", found[1]]
                assert run_command("orbitmq", *send, folder=tmp_path).returncode == 0
            assert running.stop() == 0
    shown = beginning_with(STORE)
    assert len(shown) >= 6
    for command in shown:
        line = command.line.replace("/disk2/log", shlex.quote(str(log)))
        if "/disk2/log" in command.line:
            line = line.replace("data/store", "apart/store")
        if shutil.which("jq") is None:
            line = line.partition(" | ")[0]
        orbitmq = f"{shlex.quote(sys.executable)} -m orbitmq"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line.replace("orbitmq", orbitmq, 1)],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (line, done.stderr)
        if "jq" in line:
            assert done.stdout.startswith("hello")


def test_a_new_group_skips_what_is_there_as_shown(namesrv: str, tmp_path: Path) -> None:
    with Admin(namesrv) as admin, Producer(namesrv, "shown") as producer:
        admin.create_topic("orders")
        queues = producer.publish_queues("orders")
        for queue in queues:
            producer.send(Message("orders", b"old"), queue=queue)
        for command in beginning_with(*GROUP):
            words = shlex.split(command.line)[1:]
            done = run_command("orbitmq", *words, "--namesrv", namesrv, folder=tmp_path)
            assert done.returncode == 0, done.stderr
        ends = [admin.max_offset(queue) for queue in queues]
        assert min(ends) > 0
        assert [admin.group_offset("newcomer", queue) for queue in queues] == ends
        assert admin.progress("newcomer").lag == 0


@pytest.mark.parametrize("command", beginning_with("make"), ids=lambda command: command.line)
def test_make_knows_what_to_do_and_its_program_takes_the_words(
    command: Command, tmp_path: Path
) -> None:
    hidden = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")  # of the make that may have started this test
    done = subprocess.run(
        [*shlex.split(command.line), "-n"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in hidden},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    program, *words = shlex.split(done.stdout.splitlines()[-1].partition("||")[0])
    if program == ".venv/bin/orbitmq":
        words = ["-m", "orbitmq", *words]
    assert words[0] == "-m", done.stdout
    _takes(words, tmp_path)


@pytest.mark.parametrize(
    "command", beginning_with("python -m benchmarks"), ids=lambda command: command.line
)
def test_a_benchmark_takes_the_words_that_are_shown(command: Command, tmp_path: Path) -> None:
    _takes(shlex.split(command.line)[1:], tmp_path)


def _takes(words: list[str], folder: Path) -> None:
    """Have a program of ours say what it takes, and see that its options are among that."""
    done = subprocess.run(
        [sys.executable, *words, "--help"],
        cwd=ROOT,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "usage: " in done.stdout
    shown = [word for word in words[2:] if word.startswith("-")]
    assert [word for word in shown if word not in done.stdout] == []


def test_the_extras_that_are_shown_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    shown = beginning_with(*INSTALLS)
    assert shown
    for command in shown:
        (extras,) = re.findall(r"orbitmq\[(.*?)\]", command.line)
        assert set(extras.split(",")) <= set(project["optional-dependencies"]), command.line


def test_the_application_runs_as_shown(namesrv: str, tmp_path: Path) -> None:
    for name, text in test_client_guides.FILES["guides/applications"].items():
        (tmp_path / name).write_text(text.replace('group="shop"', f'{namesrv!r}, group="shop"'))
    first, again = (shlex.split(one.line)[1:] for one in beginning_with(APPLICATION))
    with Running("orbitmq", *first, folder=tmp_path) as running:
        assert running.line() == "ready listeners=ship,note", running.errors.read_text()
        assert run_command("import_orders", folder=tmp_path).stdout == "imported\n"
        words = f"{running.line()} {running.line()}"  # of two threads, perhaps at the same time
        assert words.count("shipped") == 2
        assert running.stop(signal.SIGINT) == 0
    with Running("orbitmq", *again, folder=tmp_path) as running:
        assert running.line().startswith("ready reload=")
        assert running.line() == "ready listeners=ship,note", running.errors.read_text()
        assert running.stop(signal.SIGINT) == 0


# --- settings and expressions ---


@pytest.mark.parametrize("block", of_language("properties"), ids=lambda block: block.page)
def test_settings_are_taken_as_shown(block: Block) -> None:
    properties = parse_properties(block.text)
    assert properties
    assert [value for value in properties.values() if "#" in value] == []  # it would be part of it
    _, notes = load_settings(BrokerSettings, properties, strict=True)
    assert notes == []


def test_an_applications_file_is_read_as_shown(tmp_path: Path) -> None:
    (block,) = of_language("toml")
    (tmp_path / "orbitmq.toml").write_text(block.text)
    loaded = load({}, SystemFiles(), str(tmp_path / "orbitmq.toml"))
    assert loaded.app.namesrv == "10.0.0.1:9876;10.0.0.2:9876"
    assert loaded.app.tls is not None
    assert loaded.app.tls.trust_cert_path == "cluster.pem"
    assert (loaded.of("ship").concurrency, loaded.of("note").enabled) == (32, False)


def test_a_message_that_was_done_is_refused_by_the_table_as_shown() -> None:
    (block,) = of_language("sql")
    with sqlite3.connect(":memory:") as table:
        table.execute("CREATE TABLE done (order_id INTEGER PRIMARY KEY)")
        table.execute(block.text)
        with pytest.raises(sqlite3.IntegrityError):
            table.execute(block.text)


def test_queries_ask_for_metrics_that_exist() -> None:
    known = (ROOT / "docs/reference/metrics.md").read_text()
    asked = [
        name for block in of_language("promql") for name in re.findall(r"orbitmq_\w+", block.text)
    ]
    assert len(asked) >= 3
    assert [name for name in asked if f"`{name}`" not in known] == []
