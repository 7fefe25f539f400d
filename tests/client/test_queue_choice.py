"""Queues in turn, by key as Java does it, and brokers that are left out for a while."""

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.queue_choice import Faults, Turns, key_hash, queue_of_key
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.world.chance import SystemChance

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(3)]


class MovedTime:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def _faults() -> tuple[Faults, MovedTime]:
    clock = MovedTime()
    return Faults(clock, SystemChance(7)), clock


def test_queues_are_taken_in_turn_from_a_random_start() -> None:
    starts = set()
    for seed in range(20):
        turns = Turns(SystemChance(seed))
        taken = [turns.next(QUEUES) for _ in range(12)]
        assert sorted(taken[:6]) == QUEUES
        assert taken[:6] == taken[6:]
        assert [(QUEUES.index(taken[0]) + n) % 6 for n in range(6)] == [
            QUEUES.index(queue) for queue in taken[:6]
        ]
        starts.add(taken[0])
    assert len(starts) > 2


def test_a_retry_skips_the_broker_that_failed_if_there_is_another() -> None:
    turns = Turns(SystemChance(1))
    taken = [turns.next_elsewhere(QUEUES, "a") for _ in range(9)]
    assert {queue.broker_name for queue in taken} == {"b"}
    assert {queue.queue_id for queue in taken} == {0, 1, 2}
    only = QUEUES[:3]
    assert turns.next_elsewhere(only, "a") in only


def test_keys_are_hashed_as_java_hashes_them() -> None:
    # What a Java shell prints for them: String.hashCode, Integer.hashCode, Long.hashCode.
    assert key_hash("order-1") == -1207111310
    assert key_hash("grün") == 3185949
    assert key_hash("polygenelubricants") == -(2**31)
    assert key_hash(17) == 17
    assert key_hash(-17) == -17
    assert key_hash(1 << 40) == 256
    assert key_hash(-(1 << 40)) == -256
    assert key_hash(2**31) == -(2**31)


@given(key=st.text() | st.integers(-(2**63), 2**63 - 1), count=st.integers(1, 64))
def test_a_key_has_one_queue_and_it_is_javas(key: str | int, count: int) -> None:
    queues = [MessageQueue("T", "a", number) for number in range(count)]
    chosen = queue_of_key(queues, key)
    assert chosen == queue_of_key(queues, key)
    value = key_hash(key)
    assert -(2**31) <= value < 2**31
    java_remainder = value - count * int(value / count)
    assert chosen.queue_id == abs(java_remainder)


def test_a_slow_broker_is_avoided_for_a_time_that_grows_with_its_latency() -> None:
    for latency_s, avoided_s in (
        (0.049, 0),
        (0.549, 0),
        (0.55, 30),
        (1.0, 60),
        (2.0, 120),
        (3.0, 180),
        (14.9, 180),
        (15.0, 600),
    ):
        faults, clock = _faults()
        faults.note("a", latency_s)
        clock.now_s += 1 if avoided_s == 0 else 0
        assert faults.is_available("a") is (avoided_s == 0)
        clock.now_s += avoided_s - 1
        assert faults.is_available("a") is (avoided_s == 0)
        clock.now_s += 1
        assert faults.is_available("a")


def test_a_failed_broker_is_avoided_for_ten_minutes_and_an_unknown_one_never() -> None:
    faults, clock = _faults()
    faults.note("a", 0.001, has_failed=True)
    assert not faults.is_available("a")
    assert faults.is_available("b")
    turns = Turns(SystemChance(3))
    taken = [faults.choose(turns, QUEUES, None) for _ in range(6)]
    assert {queue.broker_name for queue in taken} == {"b"}
    clock.now_s += 600
    taken = [faults.choose(turns, QUEUES, None) for _ in range(6)]
    assert {queue.broker_name for queue in taken} == {"a", "b"}


def test_when_all_are_avoided_one_of_the_better_half_is_taken() -> None:
    faults, _ = _faults()
    faults.note("a", 0.6)
    faults.note("b", 5.0)
    turns = Turns(SystemChance(3))
    assert {faults.choose(turns, QUEUES, None).broker_name for _ in range(9)} == {"a"}
    faults.note("c", 0.7)
    faults.note("d", 9.0)
    assert {faults.least_bad() for _ in range(9)} == {"a", "c"}


def test_a_broker_that_is_in_no_route_any_more_is_forgotten() -> None:
    faults, _ = _faults()
    faults.note("gone", 0.6)
    faults.note("a", 9.0)
    faults.note("b", 9.0)
    turns = Turns(SystemChance(3))
    assert faults.choose(turns, QUEUES, "a").broker_name == "b"
    assert "gone" not in {faults.least_bad() for _ in range(9)}
    assert Faults(MovedTime(), SystemChance(1)).least_bad() is None
