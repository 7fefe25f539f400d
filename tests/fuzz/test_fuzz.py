"""The fuzz programme: every target of every `targets_*.py` beside this file.

A targets module has `TARGETS`, a name and a function of bytes each. It may have `SEEDS`, real
inputs for each name (without them the recorded frames and their bodies are used), and `ALLOWED`,
the errors that its targets may raise (without it only RemoteProtocolError).

ORBITMQ_FUZZ_EXAMPLES says how many inputs each target gets; `make nightly-fuzz` sets it high.
"""

import importlib
import os
from pathlib import Path
from types import ModuleType

import pytest

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.frame import FrameDecoder
from tests.fuzz.running import EDITS, SEED_SIZE_MAX, mutate, run_target
from tests.golden.frames import all_recorded

EXAMPLES = int(os.environ.get("ORBITMQ_FUZZ_EXAMPLES", "300"))

MODULES = [
    importlib.import_module(f"tests.fuzz.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("targets_*.py"))
]
TARGETS = [(module, name) for module in MODULES for name in module.TARGETS]


def default_seeds() -> list[bytes]:
    """Return recorded frames and bodies, every twentieth of them."""
    entries = all_recorded()[::20]
    seeds = [entry.data for entry in entries] + [entry.command.body for entry in entries]
    return [seed for seed in seeds if len(seed) <= SEED_SIZE_MAX]


@pytest.mark.nightly("fuzz", short=True)
@pytest.mark.timeout(60 + EXAMPLES)
@pytest.mark.parametrize(
    ("module", "name"), TARGETS, ids=[f"{m.__name__.split('.')[-1]}-{name}" for m, name in TARGETS]
)
def test_a_decoder_reads_or_refuses_whatever_comes(module: ModuleType, name: str) -> None:
    seeds = getattr(module, "SEEDS", {}).get(name) or default_seeds()
    allowed = getattr(module, "ALLOWED", (RemoteProtocolError,))
    run_target(module.TARGETS[name], seeds, EXAMPLES, allowed)


def test_there_are_targets_for_the_protocol() -> None:
    assert len(TARGETS) >= 16
    for module in MODULES:
        assert set(getattr(module, "SEEDS", {})) <= set(module.TARGETS), module.__name__


# --- canaries: the programme must be able to fail ---

CANARY_EXAMPLES = 5_000
"""It ends at the first that fails; with 200 one in some hundred runs met none."""


def crashes_on_a_short_input(data: bytes) -> None:
    if len(data) < 8:
        raise RemoteProtocolError("canary", "too short")
    data[: data[3]][7]  # a length that is believed


def loses_its_state_at_a_cut(data: bytes) -> None:
    whole = FrameDecoder().feed(data)
    assert [
        frame for at in range(len(data)) for frame in FrameDecoder().feed(data[at : at + 1])
    ] == (whole)


def raises_the_wrong_error(data: bytes) -> None:
    data.decode("ascii")


def hides_the_cause(data: bytes) -> None:
    if data.startswith(b"\x00"):
        raise ValueError


@pytest.mark.parametrize(
    ("canary", "error"),
    [
        (crashes_on_a_short_input, IndexError),
        (loses_its_state_at_a_cut, AssertionError),
        (raises_the_wrong_error, UnicodeDecodeError),
        (hides_the_cause, ValueError),
    ],
)
def test_a_broken_decoder_is_caught(canary: object, error: type[Exception]) -> None:
    assert callable(canary)
    seeds = [entry.data for entry in all_recorded()[:20]]
    with pytest.raises(error):
        run_target(canary, seeds, CANARY_EXAMPLES)


def test_a_bug_that_only_an_edit_shows_is_caught() -> None:
    seed = b'{"code":105,"flag":0}'

    def believes_its_peer(data: bytes) -> None:
        assert data.count(b"{") <= 1 or data == seed

    believes_its_peer(seed)
    with pytest.raises(AssertionError):
        run_target(believes_its_peer, [seed], 2_000)


def test_every_edit_changes_something_and_none_trips_over_an_empty_input() -> None:
    for kind in range(len(EDITS)):
        assert mutate(b'{"a":7}', [(kind, 1, 3)]) != b'{"a":7}'
        assert len(mutate(b"", [(kind, 5, 3)])) <= 8
