"""A stream's progress as the official mqadmin shows it, on ours and on an original.

Symptom: it showed none, for a group without a retry topic is none to it.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.foreign.judged import System, system_under_test
from tests.foreign.peers import mqadmin_script, original_broker, require_tool
from tests.spark.test_topic_judged import make, send, step, stream

VERSION = "4.9.7"

pytestmark = [
    pytest.mark.nightly("spark"),
    pytest.mark.foreign,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]


@pytest.fixture(params=["ours", "original"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[System]:
    require_tool("mvn")
    if request.param == "ours":
        with system_under_test(tmp_path) as judged:
            yield judged
        return
    with original_broker(VERSION) as original:
        yield System(original.namesrv, original.broker)


def test_mqadmin_shows_how_far_a_stream_is(
    cluster: System, fresh_name: Callable[[str], str]
) -> None:
    topic, group = fresh_name("watched"), fresh_name("sums")
    send(cluster, make(cluster, topic), range(10))
    given = {"topic": topic, "consumerGroup": group, "maxOffsetsPerTrigger": "6"}
    reader = stream(cluster, startingOffsets="earliest", **given)
    end, _ = step(reader, reader.initialOffset())
    reader.commit(end)
    (shown,) = mqadmin_script(VERSION, [["consumerProgress", "-n", cluster.namesrv, "-g", group]])
    rows = re.findall(rf"^{topic}\s+\S+\s+(\d)\s+(\d+)\s+(\d+)", shown.out, re.MULTILINE)
    assert sorted(rows) == [("0", "5", "3"), ("1", "5", "3")], f"{shown.out} {shown.err}"
    assert re.search(r"Diff Total: 4\b", shown.out), shown.out
