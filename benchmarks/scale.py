"""Many topics: a message to one of ten thousand at random, beside messages to one topic.

In: two servers of the same kind, one of which gets all topics. Out: what the same load costs each.
Rules:

1. Topics have eight queues. Before anything is measured every queue has got messages: what is
   measured is that there are many, not that they are new.
2. Rounds with one topic and with many take turns.
"""

from dataclasses import dataclass, replace

from benchmarks.client import Client
from benchmarks.loads import FIRST, Figures, Generator, Load
from benchmarks.rounds import Rounds, say, typical
from benchmarks.servers import Server
from orbitmq.wire.command import Command, encode_command

TOPIC_COUNT = 10_000
QUEUES_PER_TOPIC = 8
CHUNK = 500
MAKE_TOPIC = 17
ONE = replace(FIRST, topic="BenchmarkMany00000", queue_count=QUEUES_PER_TOPIC)


@dataclass(frozen=True, slots=True)
class Scale:
    """One load on one topic and on many."""

    topic_count: int
    one: Figures
    many: Figures

    @property
    def ratio(self) -> float:
        """CPU per message with many topics, to that with one."""
        return self.many.cost_us / self.one.cost_us


def measure(
    few: Server, many: Server, generator: Generator, rounds: Rounds, count: int, fill_s: float
) -> Scale:
    """Make the topics, fill their queues, and put the load on both servers in turn."""
    load = replace(ONE, topic_count=count)
    for server, topic_count in ((few, 1), (many, count)):
        say(f"{topic_count:,} topics of {QUEUES_PER_TOPIC} queues")
        make_topics(server, topic_count)
    replace(generator, seconds=fill_s).run(many, load)
    found: dict[str, list[Figures]] = {"one": [], "many": []}
    asked: list[tuple[str, Server, Load]] = [("one", few, ONE), ("many", many, load)]
    for round_ in range(rounds.each):
        for name, server, one in asked:
            say(f"send, 4 x 64, {name} of the topics, round {round_ + 1}")
            used = rounds.prepare(generator.warm_up_s + generator.seconds)
            found[name].append(generator.run(server, one, 0, used))
    return Scale(count, typical(found["one"]), typical(found["many"]))


def make_topics(server: Server, count: int) -> None:
    """Make topics with the names that the generator gives them."""
    with Client(server.port) as client:
        for first in range(0, count, CHUNK):
            numbers = range(first, min(first + CHUNK, count))
            client.send(b"".join(map(_make, numbers)))
            client.take_answers(len(numbers))


def _make(number: int) -> bytes:
    fields = {"topic": f"{ONE.topic[:-5]}{number:05}", "defaultTopic": "TBW102", "perm": "6"}
    fields |= dict.fromkeys(("readQueueNums", "writeQueueNums"), str(QUEUES_PER_TOPIC))
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    return encode_command(Command(MAKE_TOPIC, opaque=number, fields=fields))
