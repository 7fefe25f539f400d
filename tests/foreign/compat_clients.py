"""The compatibility programs of the Go, Node and Python clients, and their topics.

In: a system and the names of scenarios. Out: what the run stated. Rules:

1. Packages are installed by name, pinned and with checksums, once, into ORBITMQ_CACHE.
2. Only the Go client can make topics. For the others each scenario's topic (four queues, sixteen
   to share) and its group's retry topic (one queue) are made before the program starts.
3. Clients write logs and offsets below their home, which is a scratch folder here.
4. What a client cannot tell about the broker (progress, dead letters) is asked after the run and
   joins its facts.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.foreign.asking import await_claim, await_topic
from tests.foreign.compat import ORIGINAL, OURS, Played
from tests.foreign.judged import System
from tests.foreign.peers import (
    BROKER_NAME,
    BUILD_LIMIT_S,
    FETCH_LIMIT_S,
    HERE,
    Line,
    built_once,
    json_lines,
    require_tool,
    run_tool,
)
from tests.foreign.records import recorded
from tests.wire_client import WireClient

Runs = dict[str, Played]
"""What a program stated, by system."""

QUEUE_COUNT = 4
SHARED_QUEUE_COUNT = 16
PLAY_LIMIT_S = 150
AT_ONCE_MAX = 7
"""How many processes of the Python client run side by side on one system."""
ASK_LIMIT_S = 20

UPDATE_AND_CREATE_TOPIC = 17
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
QUERY_CONSUMER_OFFSET = 14
GET_MAX_OFFSET = 30

_numbers = itertools.count(1)


def new_prefix() -> str:
    """Return a prefix that keeps a run's names apart from those of others."""
    return f"L{os.getpid()}x{next(_numbers)}"


def with_record(name: str, play: Callable[[System, str], Played], ours: System) -> Runs:
    """Play on the system under test, and join what originals answered."""
    return {OURS: play(ours, new_prefix()), ORIGINAL: recorded(name)}


def play_go(system: System, prefix: str, scenarios: Iterable[str]) -> Played:
    """Play scenarios of `go/compat` with the Go client 2.1.2."""
    command = [str(_go_program()), system.namesrv, system.broker, prefix, *scenarios]
    return Played.read(_lines_of(command, {}))


def play_node(system: System, prefix: str, scenarios: Sequence[str]) -> Played:
    """Play scenarios of `node/` with ali-ons 3.12.0, rocketmq 2.0.1 and rocketmq-nodejs 1.1.2."""
    env = {"NODE_PATH": str(_node_modules())}
    make_topics(system, prefix, scenarios)
    command = [require_tool("node"), "--no-deprecation", str(HERE / "node" / "compat.js")]
    command += [system.namesrv, prefix]
    # The native client hangs when its process is ended by a call, which the others need.
    native = [name for name in scenarios if name.startswith("cpp-")]
    pure = [name for name in scenarios if name not in native]
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda names: _lines_of([*command, *names], env), (native, pure)))
    return Played.read([line for run in runs for line in run])


def play_python(system: System, prefix: str, scenarios: Sequence[str]) -> Played:
    """Play scenarios of `python/compat.py` with rocketmq 0.4.4, each in a process of its own."""
    env = {"PYTHONPATH": str(_python_packages())}
    make_topics(system, prefix, scenarios)
    command = [sys.executable, str(HERE / "python" / "compat.py"), system.namesrv, prefix]
    with ThreadPoolExecutor(AT_ONCE_MAX) as pool:
        runs = list(pool.map(lambda name: _lines_of([*command, name], env), scenarios))
    return Played.read([line for run in runs for line in run])


def _lines_of(command: Sequence[str], env: Mapping[str, str]) -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="orbitmq-compat-", ignore_cleanup_errors=True) as home:
        scratch = {"HOME": home, **env}
        return json_lines(run_tool(command, limit_s=PLAY_LIMIT_S, env=scratch, cwd=Path(home)))


# ---- programs and packages -----------------------------------------------------------------------


@functools.cache
def _go_program() -> Path:
    module = HERE / "go"
    sources = [module / "go.mod", module / "go.sum", *(module / "compat").glob("*.go")]
    with built_once("go-compat", sources, "1") as (folder, work):
        if work is not None:
            command = [require_tool("go"), "build", "-mod=readonly", "-buildvcs=false"]
            command += ["-o", str(work / "compat"), "./compat"]
            run_tool(command, limit_s=BUILD_LIMIT_S, cwd=module)
    return folder / "compat"


@functools.cache
def _node_modules() -> Path:
    lists = [HERE / "node" / "package.json", HERE / "node" / "package-lock.json"]
    npm = require_tool("npm")
    with built_once("node", lists, "1") as (folder, work):
        if work is not None:
            for one in lists:
                (work / one.name).write_bytes(one.read_bytes())
            run_tool([npm, "ci", "--no-audit", "--no-fund"], limit_s=FETCH_LIMIT_S, cwd=work)
    return folder / "node_modules"


@functools.cache
def _python_packages() -> Path:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("rocketmq 0.4.4 exists for Linux on x86-64 only")
    wanted = HERE / "python" / "requirements.txt"
    with built_once("python", [wanted], sys.version) as (folder, work):
        if work is not None:
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install"]
            pip += ["--require-hashes", "--no-deps", "--target", str(work / "packages")]
            run_tool([*pip, "-r", str(wanted)], limit_s=FETCH_LIMIT_S)
    return folder / "packages"


# ---- what the broker is asked --------------------------------------------------------------------


def topic_of(prefix: str, scenario: str) -> str:
    """Return the first topic of a scenario."""
    return f"{prefix}_{scenario}_t"


def group_of(prefix: str, scenario: str) -> str:
    """Return the first group of a scenario."""
    return f"{prefix}_{scenario}_g"


def queue_count_of(scenario: str) -> int:
    """Return how many queues the topic of a scenario has."""
    return SHARED_QUEUE_COUNT if scenario.endswith("rebalance") else QUEUE_COUNT


def make_topics(system: System, prefix: str, scenarios: Sequence[str]) -> None:
    """Make what the scenarios use; a group with a retry topic gets its first retry at once."""
    topics = {topic_of(prefix, scenario): queue_count_of(scenario) for scenario in scenarios}
    topics |= {f"%RETRY%{group_of(prefix, scenario)}": 1 for scenario in scenarios}
    with WireClient(system.broker) as client:
        for topic, queue_count in topics.items():
            answer = client.ask(
                UPDATE_AND_CREATE_TOPIC,
                topic=topic,
                defaultTopic="TBW102",
                readQueueNums=queue_count,
                writeQueueNums=queue_count,
                perm=6,
                topicFilterType="SINGLE_TAG",
                topicSysFlag=0,
                order="false",
            )
            assert answer.code == 0, answer.remark
    for topic in topics:
        await_topic(system.namesrv, topic, BROKER_NAME)


def allow_retries(system: System, group: str, count_max: int) -> None:
    """Say how often a message of the group may be tried again."""
    body = json.dumps({"groupName": group, "retryMaxTimes": count_max}).encode()
    with WireClient(system.broker) as client:
        answer = client.ask(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
    assert answer.code == 0, answer.remark


def committed_count(system: System, prefix: str, scenario: str) -> int:
    """How many messages of the scenario's topic are behind its group, by the broker's word."""
    fields = {"consumerGroup": group_of(prefix, scenario), "topic": topic_of(prefix, scenario)}
    with WireClient(system.broker) as client:
        answers = [
            client.ask(QUERY_CONSUMER_OFFSET, queueId=queue_id, **fields)
            for queue_id in range(queue_count_of(scenario))
        ]
    return sum(int(answer.fields["offset"]) for answer in answers if answer.code == 0)


def state_left(system: System, prefix: str, scenario: str, played: Played) -> None:
    """Join to the facts how many messages of the scenario its group has not behind it."""
    if scenario not in played.errors:
        sent_count = played.measure(scenario, "sent")
        left_count = sent_count - committed_count(system, prefix, scenario)
        played.facts[scenario, "left to consume"] = left_count


def dead_count(system: System, prefix: str, scenario: str) -> int:
    """Return how many dead letters the scenario's group has, once there is one."""
    topic = f"%DLQ%{group_of(prefix, scenario)}"
    with WireClient(system.broker) as client:

        def count() -> int:
            answer = client.ask(GET_MAX_OFFSET, topic=topic, queueId=0)
            return int(answer.fields["offset"]) if answer.code == 0 else 0

        await_claim(lambda: count() > 0, f"{topic} has a message", ASK_LIMIT_S)
        return count()
