"""SQL filters over records' bytes say what the expression's functions say of their properties.

In: expressions made at random, and properties as bytes: ordinary, odd, damaged. Out: what each
core's filter says of a record that has them, and what a pull by the compiled core gets.
"""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbitmq.broker.pulls import Pull
from orbitmq.broker.selecting import look
from orbitmq.core import Gathered, PullStatus, Subscription, plain_filter
from orbitmq.sql import Expression
from orbitmq.wire.command import Command, decode_command
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.host import Host
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import MAGIC_V1, MAGIC_V2, Record, encode_record
from tests.core.hot import (
    IMPLEMENTATIONS,
    NOW_MS,
    new_state,
    origin,
    publish,
    pull_frame,
    send_frame,
)
from tests.sql.generated import NAMES, QUOTED, TEXTS, make_truth, text_of
from tests.sql.test_cost import COSTLY, LOOP_S
from tests.sql.test_generated import Drawn

FILTERS = {"plain": plain_filter.SqlFilter}
if "compiled" in IMPLEMENTATIONS:
    FILTERS["compiled"] = IMPLEMENTATIONS["compiled"].SqlFilter

ODD_TEXTS = (
    *("", "+5", "-5", "+", "-", "00005", "0" * 64 + "5", "5" * 64, "2147483647", "2147483648"),
    *(
        "-2147483648",
        "-2147483649",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
    ),
    *(
        "-9223372036854775809",
        "18446744073709551621",
        "5.",
        ".5",
        ".",
        "-.5e1",
        " 5\t",
        "5 5",
        "1_0",
    ),
    *(
        "0x1p3",
        "Infinity",
        "-NaN",
        "-0.0",
        "0.0",
        "5f",
        "5dd",
        "1e999",
        "3" * 65,
        "٣",
        "é",
        "\ufffd",
    ),
    *("TRUE", "tRuE", "tru", "true ", "False", "5\x015", "\x01", "it's", "xabcx", "xx", "abcabc"),
)
EXPRESSIONS = (
    *(
        "a = 5",
        "a <> -5",
        "5 = a",
        "a > -2147483648",
        "a >= 2147483648",
        "a <= 9223372036854775807",
    ),
    *(
        "a = 5L",
        "a < 0.5",
        "3.5 >= a",
        "-5.5 < a",
        "a > b",
        "a <= b",
        "b = a",
        "a = 'é'",
        "'x' <> a",
    ),
    *("a = TRUE", "a <> FALSE", "a IS NULL", "b IS NOT NULL", "a", "NOT a", "a = -b", "-a IS NULL"),
    *(
        "a IN ('5', 'x', 'é')",
        "a NOT IN ('5')",
        "a CONTAINS 'x'",
        "a NOT CONTAINS ''",
        "a ENDSWITH 'abc'",
    ),
    *(
        "a NOT STARTSWITH 'ab' OR b = 3",
        "a BETWEEN 0 AND 49 AND b IN ('x')",
        "a NOT BETWEEN -5 AND 5",
    ),
    *(
        "a > 5 OR TRUE",
        "TRUE OR a > 5",
        "FALSE AND a > 5",
        "NOT (a > 5 AND b > 5)",
        "a CONTAINS '\ufffd'",
    ),
)

PIECES = st.sampled_from([*TEXTS, *ODD_TEXTS, *NAMES, *QUOTED]).map(str.encode)
ENTRIES = st.builds(
    lambda name, value: name + b"\x01" + value,
    st.sampled_from([b"a", b"b", b"c", b"aa", b"", b"A"]),
    PIECES,
)
PROPERTIES = st.lists(
    ENTRIES
    | PIECES
    | st.sampled_from([b"", b"a", b"a\x01", b"\x01b", b"a\x01\xff", b"b\x01\xe2\x82"]),
    max_size=5,
).map(b"\x02".join)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """An expression: a tree of the tests of `orbitmq.sql`, or one with something at an edge."""
    if draw(st.booleans()):
        return text_of(make_truth(Drawn(draw), 3))
    return " OR ".join(draw(st.lists(st.sampled_from(EXPRESSIONS), min_size=1, max_size=2)))


def record_of(properties: bytes, *, magic: int, ip: str) -> bytes:
    return encode_record(
        Record(
            magic=magic,
            topic="T",
            body=b"body",
            properties=properties,
            born_host=Host(ip, 1),
            store_host=Host("127.0.0.1", 2),
        )
    )


@pytest.mark.parametrize("core", FILTERS)
@settings(max_examples=1_000, deadline=None)
@given(
    texts(),
    PROPERTIES,
    st.sampled_from([MAGIC_V1, MAGIC_V2]),
    st.sampled_from(["10.0.0.1", "::1"]),
)
@example("a = 2147483648", b"a\x01" + b"0" * 55 + b"2147483648", MAGIC_V2, "::1")
def test_a_filter_says_what_the_expression_says(
    core: str, text: str, properties: bytes, magic: int, ip: str
) -> None:
    expression = Expression(text)
    accepts = FILTERS[core](expression)
    record = record_of(properties, magic=magic, ip=ip)
    expected = expression.accepts(parse_properties(properties))
    assert accepts(memoryview(record)) is expected
    assert accepts(memoryview(record)) is expected  # it keeps nothing of the first one


SETS = " OR ".join(["a IN ('x', 'y')"] * 250)


@pytest.mark.parametrize("core", FILTERS)
@pytest.mark.parametrize("name", [*COSTLY, "sets"])
def test_the_most_expensive_filters_hold_the_loop_for_less_than_5_ms(core: str, name: str) -> None:
    text, values = {**COSTLY, "sets": (SETS, {"a": "a" * 32_000})}[name]
    properties = "\x02".join(f"{key}\x01{value}" for key, value in values.items())
    record = memoryview(record_of(properties.encode(), magic=MAGIC_V1, ip="10.0.0.1"))
    accepts = FILTERS[core](Expression(text))
    took_s = []
    for _ in range(60):  # the best of many: others use this machine, too
        start_s = time.thread_time()
        accepts(record)
        took_s.append(time.thread_time() - start_s)
    assert min(took_s) < LOOP_S


# ---- pulls ----

compiled_only = pytest.mark.skipif("compiled" not in FILTERS, reason="it is not built")


def pull_both(
    text: str, messages: list[bytes], offset: int = 0, **fields: int
) -> tuple[Command | None, Gathered]:
    """What the compiled core answers to a pull, and what the reference's look finds."""
    core = IMPLEMENTATIONS["compiled"]
    state = new_state(core, 1 << 16)
    queue, came_from = state.topics["T"].queues[0], origin(core)
    for properties in messages:
        core.append(state.tail, queue, came_from, (0, 0, 0, 0, 0, 0), b"x" * 40, properties)
    publish(state)
    expression = Expression(text)
    state.subscriptions["G", "T"] = Subscription(7, None, core.SqlFilter(expression))
    frame = pull_frame(offset, sysFlag=0, **fields)
    result = core.handle_one_read(state, frame, 0, came_from, NOW_MS)
    answer = b"".join(map(bytes, result.answers))
    pull = Pull(
        request=decode_command(FrameDecoder().feed(frame)[0]),
        queue=queue,
        queue_offset=offset,
        count_max=fields.get("maxMsgNums", 32),
        codes=None,
        accepts=plain_filter.SqlFilter(expression),
    )
    found = look(state, pull, offset, lambda: 0.0)
    return decode_command(FrameDecoder().feed(answer)[0]) if result.pulls else None, found


def check_pull(answer: Command, found: Gathered) -> None:
    assert found.status is PullStatus.FOUND
    assert answer.fields["nextBeginOffset"] == str(found.next_offset)
    assert bytes(answer.body) == b"".join(found.parts)


@compiled_only
@settings(max_examples=300, deadline=None)
@given(
    texts(), st.lists(PROPERTIES, max_size=50), st.integers(0, 3), st.sampled_from([1, 2, 32, 100])
)
def test_a_pull_gets_what_a_look_finds(
    text: str, messages: list[bytes], offset: int, count_max: int
) -> None:
    answer, found = pull_both(text, messages, offset, maxMsgNums=count_max)
    if answer is not None:  # else it is the handler's, which looks as `found` did
        check_pull(answer, found)


MANY = [b"a\x01%d\x02note\x01\xc3\xa9\x02b\x01x" % (number % 100) for number in range(500)]


@compiled_only
@pytest.mark.parametrize("count_max", [1, 7, 32])
@pytest.mark.parametrize("offset", [0, 3, 490])
def test_the_compiled_core_takes_ordinary_pulls(offset: int, count_max: int) -> None:
    text = "a NOT BETWEEN 50 AND 80 AND b IN ('x', 'y') AND a <> 7"
    answer, found = pull_both(text, MANY, offset, maxMsgNums=count_max)
    assert answer is not None
    check_pull(answer, found)


@compiled_only
@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("a = 1000", MANY),  # nothing found
        ("a = 'x'", [b"a\x01\xc3\xa9", b"a\x01x"]),  # beyond ASCII
        ("a CONTAINS 'abc' OR b = 5", [b"a\x01" + b"a" * 32_000, b"b\x015"]),  # a long search
        ("a = b OR a = 5", [b"a\x015"]),  # no program
        (" OR ".join(["a > 1.5"] * 100), [b"a\x011.25"] * 200 + [b"a\x012"]),  # takes long
    ],
)
def test_what_is_odd_or_takes_long_is_left_to_the_handler(text: str, messages: list[bytes]) -> None:
    assert pull_both(text, messages)[0] is None


@compiled_only
def test_a_filter_does_not_look_at_what_may_not_be_in_memory() -> None:
    core = IMPLEMENTATIONS["compiled"]
    state = new_state(core, 1 << 16)
    queue, came_from = state.topics["T"].queues[0], origin(core)
    for _ in range(2):
        core.append(state.tail, queue, came_from, (0, 0, 0, 0, 0, 0), b"", b"a\x015")
    publish(state)
    state.subscriptions["G", "T"] = Subscription(7, None, core.SqlFilter(Expression("a = 5")))
    frame = pull_frame(0, sysFlag=0)
    assert core.handle_one_read(state, frame, 0, came_from, NOW_MS).pulls == 1
    state.tail.hot_offset = 50
    assert core.handle_one_read(state, frame, 0, came_from, NOW_MS).pulls == 0


def test_the_plain_core_leaves_filters_to_the_handler() -> None:
    core = IMPLEMENTATIONS["plain"]
    state = new_state(core)
    core.handle_one_read(state, send_frame(i="a\x015"), 0, origin(core), NOW_MS)
    publish(state)
    frame = pull_frame(0, sysFlag=0)
    assert core.handle_one_read(state, frame, 0, origin(core), NOW_MS).pulls == 1
    accepts = plain_filter.SqlFilter(Expression("a = 5"))
    state.subscriptions["G", "T"] = Subscription(7, None, accepts)
    assert core.handle_one_read(state, frame, 0, origin(core), NOW_MS).pulls == 0
