"""Synchronous clients and forks: the child makes its own, its parent's go on as if nothing was."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from orbitmq import Admin, ConsumeFromWhere, Message, Producer, PullConsumer, PushConsumer
from orbitmq.errors import ClientStateError
from orbitmq.wire.message_id import UniqueId, decode_unique_id
from tests.foreign.judged import System

LIMIT_S = 20.0
CHILD_LIMIT_S = 60
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
FreshName = Callable[[str], str]


@pytest.fixture
def namesrv(system: System) -> str:
    return system.namesrv


def in_child(work: Callable[[], str]) -> str:
    """Return what a function gives in a fork of this process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a child that hangs is ended
        signal.alarm(CHILD_LIMIT_S)
        try:
            os.write(writing, work().encode())
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as told:
        text = told.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return text


def test_a_fork_makes_its_own_clients_and_leaves_its_parents_alone(
    namesrv: str, fresh_name: FreshName
) -> None:
    topic = fresh_name("Topic")
    with Producer(namesrv, "shop") as producer:
        producer.send(Message(topic, b"of the parent"))

        def work() -> str:
            with pytest.raises(ClientStateError, match="make a new one there"):
                producer.send(Message(topic, b"never"))
            producer.close()
            with Producer(namesrv, "shop") as own:
                own.send(Message(topic, b"of the child"))
            return "sent"

        assert in_child(work) == "sent"
        producer.send(Message(topic, b"of the parent again"))
    with Admin(namesrv) as admin:
        assert admin.topic_stats(topic).message_count == 3


def test_the_ids_of_a_child_are_not_those_that_its_parent_goes_on_with(
    namesrv: str, fresh_name: FreshName
) -> None:
    """Both count from the same number: only what stands before the counter tells them apart."""
    topic = fresh_name("Topic")

    def sent(producer: Producer) -> UniqueId:
        return decode_unique_id(producer.send(Message(topic, b"x")).message_id)

    def work() -> str:
        with Producer(namesrv, "shop") as own:
            made = sent(own)
        assert made.pid == os.getpid() & 0xFFFF
        return f"{made.pid} {made.salt}"

    with Producer(namesrv, "shop") as producer:
        before = sent(producer)
        pid, salt = map(int, in_child(work).split())
        after = sent(producer)
    assert (before.pid, before.salt) == (after.pid, after.salt)
    assert before.pid == os.getpid() & 0xFFFF
    assert pid != after.pid
    assert salt != after.salt  # of two numbers in 2^32: process ids have only 16 bits here


def test_consumers_go_on_in_the_parent_while_the_child_consumes_with_its_own(
    namesrv: str, fresh_name: FreshName
) -> None:
    topic = fresh_name("Topic")
    got: SimpleQueue[bytes] = SimpleQueue()
    pushing = PushConsumer(
        namesrv, fresh_name("Group"), lambda message: got.put(message.body), from_where=FIRST
    )
    pushing.subscribe(topic)
    pulling = PullConsumer(namesrv, fresh_name("Group"), from_where=FIRST)

    def work() -> str:
        for use in (pushing.queues, pushing.suspend, lambda: next(iter(pulling)), pulling.poll):
            with pytest.raises(ClientStateError, match="make a new one there"):
                use()
        pushing.close()
        pulling.close()
        own = PushConsumer(namesrv, fresh_name("OwnGroup"), from_where=FIRST)
        own.subscribe(topic)
        with own:
            return next(iter(own)).body.decode()

    with Producer(namesrv, "shop") as producer:
        queue = producer.send(Message(topic, b"before the fork")).queue
        with pushing, pulling:
            pulling.assign([queue])
            assert got.get(timeout=LIMIT_S) == b"before the fork"
            assert [each.body for each in pulling.poll(LIMIT_S)] == [b"before the fork"]
            assert in_child(work) == "before the fork"
            producer.send(Message(topic, b"after it"), queue=queue)
            assert got.get(timeout=LIMIT_S) == b"after it"
            assert [each.body for each in pulling.poll(LIMIT_S)] == [b"after it"]
