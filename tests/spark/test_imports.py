"""What Spark's processes must not import: each of them, several for a query, would pay for it.

Symptom: a query on 300,000 rows of header columns spent half of its CPU on imports.
"""

import subprocess
import sys

import pytest

DECODE = """
import numpy as np
from orbitmq.arrow.columns import arrow_schema
from orbitmq.arrow.decode import BatchDecoder
from orbitmq.wire.host import Host
from tests.arrow.made import laid, plain
keys = [b"KEYS\\1" + b"k" * size + b"\\2" for size in range(1, 10)]
kinds = (
    [plain(number) for number in range(9)],
    [plain(0, properties=key + b"TAGS\\1t\\2") for key in keys],
    [plain(0, properties=key + b"TAGS\\1t\\2" * (len(key) % 2)) for key in keys],
    [plain(0, born_host=Host("127.0.0.1", number)) for number in range(9)],
)
for data, starts in map(laid, kinds):
    for name in (None, "broker-a"):
        decoder = BatchDecoder(arrow_schema(), broker_name=name)
        assert decoder.decode(data, np.array(starts)).batch.num_rows == 9
"""

CHOOSE = """
import numpy as np
from orbitmq.spark.log_reading import LogFilter
from orbitmq.spark.log_options import log_options
from tests.arrow.made import laid, plain
chosen = {"topic": "TopicA", "queues": "1,2", "tags": "TagA", "startingTimestamp": "1700000000005"}
data, starts = laid([plain(number) for number in range(9)])
wanted, _ = LogFilter(log_options({"path": "/", **chosen})).wanted(data, np.array(starts))
assert len(wanted) == 2
"""

WRITE = """
import numpy as np
from orbitmq.arrow.segments import repeated
from orbitmq.spark.sink_messages import messages_of
from orbitmq.spark.sink_writing import Requests, TaskKey, sink_options
from orbitmq.wire.bodies_client import MessageQueue
columns = {name: repeated("x", 9) for name in ("body", "tags", "keys", "shardingKey")}
messages = messages_of(TaskKey("q", 1, 0), columns, np.arange(9, dtype=np.uint64))
options = sink_options({"namesrvAddr": "127.0.0.1:1", "topic": "T", "queueSelector": "roundRobin"})
assert len(list(Requests("T", [MessageQueue("T", "b", 0)], options).of(messages))) == 1
"""


@pytest.mark.parametrize(
    ("program", "others"),
    [
        ("import orbitmq.spark.log_source", ("orbitmq.client", "pandas", "orbitmq.arrow.decode")),
        ("import orbitmq.spark.log_reading", ("orbitmq.client", "pandas")),
        ("import orbitmq.spark.topic_source", ("orbitmq.spark.sink_writing", "pandas")),
        (DECODE, ("pandas",)),
        (CHOOSE, ("pandas",)),
        (WRITE, ("pandas",)),
    ],
    ids=[
        "a store is planned",
        "a store is read",
        "a topic is planned",
        "records are decoded",
        "records are chosen",
        "rows are written",
    ],
)
def test_nothing_is_imported_that_is_not_needed(program: str, others: tuple[str, ...]) -> None:
    look = f"\nimport sys\nprint([name for name in {others!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program + look], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"
