"""The name-server commands of mqadmin, run on two name servers side by side.

In: the addresses of the name server under test and of an original, to which the same brokers have
registered. Out: a transcript per side, with what the official tool printed at each step. Since the
brokers are the same, both sides must print the same, up to what `normal_form` evens out: order
(the original's tables are hash maps), the server's own address, and rates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.foreign.peers import AdminOutput, mqadmin_script

Transcript = dict[str, AdminOutput]

ORDER = "ORDER_TOPIC_CONFIG"

# A step's name and its command; {topic} is a topic of both brokers, {doomed} one that may go.
READING_STEPS: Mapping[str, str] = {
    "topic list": "topicList",
    "topic list by cluster": "topicList -c",
    "route": "topicRoute -t {topic}",
    "route as table": "topicRoute -t {topic} -l",
    "route of an unknown topic": "topicRoute -t no_such_topic",
    "clusters of a topic": "topicClusterList -t {topic}",
    "cluster list": "clusterList",
    "cluster totals": "clusterList -m",
    "allocation": "allocateMQ -t {topic} -i 10.0.0.1,10.0.0.2",
}
# A 5.5.0 tool waits for seconds in some commands, so it runs only those that matter most.
READING_STEPS_5 = ("topic list", "route", "route as table", "cluster list")
CHANGING_STEPS: Mapping[str, str] = {
    "order of none": "updateOrderConf -m get -t {topic}",
    "put order": "updateOrderConf -m put -t {topic} -v broker-4:4;broker-5:4",
    "order after put": "updateOrderConf -m get -t {topic}",
    "route with order off": "topicRoute -t {topic}",
    "settings before": "getNamesrvConfig",
    "set order on": "updateNamesrvConfig -k orderMessageEnable -v true",
    "settings after": "getNamesrvConfig",
    "route with order on": "topicRoute -t {topic}",
    "set order off": "updateNamesrvConfig -k orderMessageEnable -v false",
    "set a path": "updateNamesrvConfig -k kvConfigPath -v elsewhere.json",
    "settings at the end": "getNamesrvConfig",
    "delete order": "updateOrderConf -m delete -t {topic}",
    "order after delete": "updateOrderConf -m get -t {topic}",
    "put kv": f"updateKvConfig -s {ORDER} -k some_key -v some_value",
    "kv after put": "updateOrderConf -m get -t some_key",
    "put kv again": f"updateKvConfig -s {ORDER} -k some_key -v other_value",
    "kv after second put": "updateOrderConf -m get -t some_key",
    "delete kv": f"deleteKvConfig -s {ORDER} -k some_key",
    "kv after delete": "updateOrderConf -m get -t some_key",
    "delete absent kv": "deleteKvConfig -s no_such_namespace -k no_such_key",
    "wipe write permission": "wipeWritePerm -b broker-4",
    "route after wipe": "topicRoute -t {topic} -l",
    "wipe an unknown broker": "wipeWritePerm -b no_such_broker",
    "add write permission": "addWritePerm -b broker-4",
    "route after add": "topicRoute -t {topic} -l",
    "add to an unknown broker": "addWritePerm -b no_such_broker",
    "delete topic": "deleteTopic -c DefaultCluster -t {doomed}",
    "route after topic delete": "topicRoute -t {doomed}",
    "delete topic again": "deleteTopic -c DefaultCluster -t {doomed}",
}


def run_side_by_side(
    version: str, steps: Mapping[str, str], sides: Sequence[Mapping[str, str]]
) -> list[Transcript]:
    """Each step on each side before the next step, all in one JVM.

    A side is what stands for {namesrv}, {topic} and {doomed} in its commands.
    """
    commands = [
        [*(word.format(**side) for word in step.split()), "-n", side["namesrv"]]
        for step in steps.values()
        for side in sides
    ]
    outputs = mqadmin_script(version, commands)
    count = len(sides)
    return [dict(zip(steps, outputs[i::count], strict=True)) for i in range(count)]


def error_codes(output: AdminOutput) -> list[int]:
    """The codes of the answers that the tool reported as failures."""
    return [int(code) for code in re.findall(r"CODE: (\d+) ", output.err)]


def table(output: AdminOutput) -> list[list[str]]:
    """The rows of a printed table, without its head."""
    lines = output.out.splitlines()
    return [line.split() for line in lines if line.strip() and not line.startswith(("#", "--"))]


def settings(output: AdminOutput) -> dict[str, str]:
    """The properties that getNamesrvConfig printed."""
    pairs = re.findall(r"^(\w+) *=  (.*)$", output.out, re.MULTILINE)
    return {key: value.strip() for key, value in pairs}


def route(output: AdminOutput) -> dict[str, Any]:
    """The route that topicRoute printed; its number keys are bare."""
    quoted = re.sub(r"([{,]\s*)(\d+)\s*:", r'\1"\2":', output.out)
    found: dict[str, Any] = json.loads(quoted) if quoted.strip() else {}
    for key in ("brokerDatas", "queueDatas"):
        found.get(key, []).sort(key=lambda data: data["brokerName"])
    return found


def _allocation(output: AdminOutput) -> object:
    result = json.loads(output.out)["result"]
    queues = sorted((q["brokerName"], q["queueId"]) for share in result.values() for q in share)
    return {address: len(share) for address, share in result.items()}, queues


def _columns(count: int) -> Callable[[AdminOutput], object]:
    return lambda output: sorted(row[:count] for row in table(output))


NORMAL_FORMS: Mapping[str, Callable[[AdminOutput], object]] = {
    "topic list": lambda output: sorted(output.out.split()),
    "topic list by cluster": lambda output: sorted(table(output)),
    "route": route,
    "route with order off": route,
    "route with order on": route,
    "cluster list": _columns(5),  # the columns after the version are rates and ages
    "cluster totals": _columns(2),
    "allocation": _allocation,
}


def normal_form(step: str, output: AdminOutput, side: Mapping[str, str]) -> object:
    """What both sides must agree on: error codes and what was printed."""
    if step in NORMAL_FORMS:
        return error_codes(output), NORMAL_FORMS[step](output)
    text = output.out.replace(side["namesrv"], "NAMESRV").replace(side["doomed"], "DOOMED")
    return error_codes(output), text
