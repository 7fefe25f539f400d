"""Messages for pulls that filter by an expression, and the consumer that subscribes to them.

In: a server. Out: a block in which its queues hold messages with properties and a group's filter
is known, as that of a push consumer is. The load itself is `loads.SQL`.

Rules:
1. The expression compares a number and a text and is true for every second message, so each pull
   of 32 looks at 64.
2. The heartbeat's connection stays open during the block: a broker forgets filters of the gone.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.client import HEARTBEAT, Client, consumer_heartbeat
from benchmarks.frames import NOW_MS, frame
from benchmarks.loads import PULL_COUNT, QUEUE_COUNT, SQL, SQL_TOPIC, LoadFailed
from benchmarks.servers import Server

GROUP = "benchmark_sql"
EXPRESSION = "amount BETWEEN 0 AND 49 AND region IN ('north', 'west')"
PER_QUEUE = 2_000
CHUNK = 200
PULL_END = PER_QUEUE - 2 * PULL_COUNT
VISIBLE_LIMIT_S = 20.0
LOOK_S = 0.02


@contextmanager
def filtered(server: Server) -> Iterator[None]:
    """Fill the topic if it is empty, join the group, and leave at the end."""
    with Client(server.port) as client:
        client.ask(HEARTBEAT, consumer_heartbeat(GROUP, SQL_TOPIC, EXPRESSION))
        _fill(client)
        yield


def _fill(client: Client) -> None:
    count = QUEUE_COUNT * PER_QUEUE
    for first in range(0, count, CHUNK):
        client.send(b"".join(_send(number) for number in range(first, first + CHUNK)))
        client.take_answers(CHUNK)
    deadline = time.monotonic() + VISIBLE_LIMIT_S
    # An original fills its queues a moment after the answer.
    while any(client.max_offset(SQL_TOPIC, one) < PER_QUEUE for one in range(QUEUE_COUNT)):
        if time.monotonic() > deadline:
            raise LoadFailed(f"{SQL_TOPIC} is not filled after {VISIBLE_LIMIT_S} s")
        time.sleep(LOOK_S)


def _send(number: int) -> bytes:
    """A message to the queues in turn; within a queue every second one has a small amount."""
    queue_id, amount = number % QUEUE_COUNT, number // QUEUE_COUNT % 2 * 50 + number % 50
    properties = f"region\x01north\x02amount\x01{amount}\x02TAGS\x01TagA\x02"
    properties += f"UNIQ_KEY\x017F00000100002A139A550001E24{number:05X}\x02WAIT\x01true\x02"
    fields = {"a": "benchmark_producer", "b": SQL_TOPIC, "c": "TBW102", "d": str(QUEUE_COUNT)}
    fields |= {"e": str(queue_id), "f": "0", "g": str(NOW_MS), "h": "0", "i": properties}
    fields |= {"j": "0", "k": "false", "l": "0", "m": "false", "n": "broker-a"}
    return frame(310, fields, b"x" * SQL.body_size, 1_000_000_000 + number)
