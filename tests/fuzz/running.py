"""How a fuzz target is fed: mutated seeds and random bytes, and what counts as a failure.

In: a target (bytes to nothing), its seeds, a number of examples. Out: nothing, or the exception
that the target let through, with the smallest input that hypothesis found for it.

Rules:
1. A target may raise the errors it is allowed to and nothing else.
2. A seed is a real input; an example is a seed after a few edits, or random bytes.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.errors import RemoteProtocolError

Target = Callable[[bytes], None]
Edit = tuple[int, int, int]

SEED_SIZE_MAX = 1_500
"""Longer seeds are left out: an edit in them rarely hits anything, and they cost time."""

_NUMBERS = (0, 1, -1, 4, 127, 2**15 - 1, 2**16, 2**24, 2**31 - 1, -(2**31))
"""Lengths and counts that decoders trip over."""

_WORD = re.compile(rb'"[^"]*"|-?[0-9]+|true|false|null|[{][}]|\[\]')
_WORDS = (
    *(b"null", b"true", b"false", b"{}", b"[]", b'""', b'"1"', b'"x"', b'"\\u0001"', b"0", b"-1"),
    *(
        b"1.5",
        b"1e3",
        b"4294967296",
        b"9223372036854775808",
        b"[null]",
        b'{"$ref":"$.x"}',
        b"{1:2}",
    ),
)


def _flip(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([data[at] ^ (1 << value % 8)]) + data[at + 1 :] if data else data


def _replace(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


def _insert(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) * (1 + value % 5) + data[at:]


def _cut_out(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + data[at + 1 + value :]


def _cut_off(data: bytes, at: int, value: int) -> bytes:
    return data[at:] if value % 2 else data[:at]


def _duplicate(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + data[at : at + 1 + value] * 2 + data[at + 1 + value :]


def _number(data: bytes, at: int, value: int) -> bytes:
    number = _NUMBERS[value % len(_NUMBERS)].to_bytes(4, "big", signed=True)
    return data[:at] + number + data[at + 4 :]


def _word(data: bytes, at: int, value: int) -> bytes:
    """Put another JSON value in the place of one: what is still JSON gets deeper."""
    found = _WORD.search(data, at)
    return (
        data[: found.start()] + _WORDS[value % len(_WORDS)] + data[found.end() :] if found else data
    )


EDITS = (_flip, _replace, _insert, _cut_out, _cut_off, _duplicate, _number, _word, _word)
"""The last one twice: most inputs are JSON."""


def mutate(seed: bytes, edits: Sequence[Edit]) -> bytes:
    """Return the seed after the edits: which edit, where, and a value for it."""
    for kind, at, value in edits:
        seed = EDITS[kind](seed, at % len(seed) if seed else 0, value)
    return seed


def inputs(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Return the strategy of a target's inputs."""
    edit = st.tuples(
        st.integers(0, len(EDITS) - 1), st.integers(0, SEED_SIZE_MAX), st.integers(0, 255)
    )
    mutated = st.builds(mutate, st.sampled_from(seeds), st.lists(edit, max_size=4))
    return st.one_of(mutated, mutated, st.binary(max_size=64))


def run_target(
    target: Target,
    seeds: Sequence[bytes],
    examples: int,
    allowed: tuple[type[Exception], ...] = (RemoteProtocolError,),
) -> None:
    """Feed the target; raises whatever it raises besides the allowed errors."""
    for seed in seeds:
        _feed(target, seed, allowed)

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs(seeds))
    def feed(data: bytes) -> None:
        _feed(target, data, allowed)

    feed()


def _feed(target: Target, data: bytes, allowed: tuple[type[Exception], ...]) -> None:
    with suppress(*allowed):
        target(data)
