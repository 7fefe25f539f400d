"""The guides for those who consume, delay, filter and administer: what they show is true.

Commands are taken by their programs, tables are computed again, expressions are evaluated, and the
advice that is promised is there, under its heading.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.broker.handlers.send_back import FIRST_LEVEL
from orbitmq.broker.store_options import parse_delays
from orbitmq.cli.main import make_parser
from orbitmq.cli.process import read_overrides
from orbitmq.config import BrokerSettings, facts_of, load_settings
from orbitmq.sql import compile_expression

ROOT = Path(__file__).parents[2]
NAMES = ("consuming", "delay", "filters", "admin", "compatibility", "network")
GUIDES = {name: (ROOT / f"docs/guides/{name}.md").read_text() for name in NAMES}
DEFAULT_DELAYS = BrokerSettings().message_delay_level.split()
WORDS = {"TRUE": True, "FALSE": False, "NULL": None}


def commands() -> Iterator[tuple[str, list[str]]]:
    """Return the commands of all guides: the program and its words."""
    for text in GUIDES.values():
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            for line in block.splitlines():
                name, *words = shlex.split(line, comments=True)
                yield name, words


def table(text: str, head: str) -> list[list[str]]:
    """Return the cells of the table whose first line begins with `head`."""
    lines = text[text.index(head) :].splitlines()
    rows = [line for line in lines[: lines.index("")] if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def section(page: str, heading: str) -> str:
    """Return what stands under a heading, up to the next one of its level."""
    level, _, title = heading.partition(" ")
    pattern = rf"^{re.escape(level)} {re.escape(title)}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)"
    found = re.search(pattern, GUIDES[page], re.DOTALL | re.MULTILINE)
    assert found is not None, f"{page}.md has no section {heading}"
    return found[1]


# --- commands and settings ---


@pytest.mark.parametrize(
    "words", [words for name, words in commands() if name == "orbitmq"], ids=" ".join
)
def test_each_command_of_ours_is_taken(words: list[str]) -> None:
    parsed = make_parser().parse_args(words)
    overrides = read_overrides(getattr(parsed, "overrides", []))
    load_settings(BrokerSettings, {}, overrides, strict=True)


def test_each_setting_that_is_given_a_value_exists() -> None:
    known = {one.key for one in facts_of(BrokerSettings)} | {"notifyConsumerIdsChangedEnable"}
    for name, text in GUIDES.items():
        given = set(re.findall(r"`([a-z]\w*)=[^`=]*`", text))
        assert given <= known, name


# --- tables ---


def test_the_table_of_delay_levels_is_the_default_list() -> None:
    rows = table(GUIDES["delay"], "| level | delay |")
    shown = {int(row[i]): row[i + 1] for row in rows for i in (0, 2, 4)}
    assert shown == dict(enumerate(DEFAULT_DELAYS, 1))


def test_the_table_of_retries_is_what_the_broker_does() -> None:
    rows = table(GUIDES["consuming"], "| try | after |")
    shown = {int(row[i]): row[i + 1] for row in rows for i in (0, 2, 4, 6)}
    assert shown == dict(enumerate(DEFAULT_DELAYS[FIRST_LEVEL - 1 :], 1))
    assert sum(parse_delays(" ".join(shown.values()))) == ((4 * 60 + 45) * 60 + 40) * 1_000
    assert "4 h 45 min 40 s" in GUIDES["consuming"]


@pytest.mark.parametrize("row", table(GUIDES["filters"], "| `a` | `b` |"), ids=" ".join)
def test_the_truth_table_is_how_expressions_are_evaluated(row: list[str]) -> None:
    a, b, both, either, negated = row
    said = [compile_expression(text).value({}) for text in (f"{a} AND {b}", f"{a} OR {b}")]
    assert said == [WORDS[both], WORDS[either]]
    turned = [compile_expression(text).value({}) for text in (f"{b} AND {a}", f"{b} OR {a}")]
    assert turned == said
    assert compile_expression(f"NOT {a}").value({}) is WORDS[negated]


@pytest.mark.parametrize("row", table(GUIDES["filters"], "| expression | is |"), ids=" ".join)
def test_each_expression_is_what_the_guide_says(row: list[str]) -> None:
    properties = {"amount": "120", "country": "AT"}
    assert compile_expression(row[0].strip("`")).value(properties) is WORDS[row[1]]


# --- advice ---


@pytest.mark.parametrize(
    ("page", "heading", "words"),
    [
        ("consuming", "## Push or pull", ("push consumer", "own pace")),
        ("consuming", "## Long polling", ("own pace", "at once", "flooded")),
        (
            "consuming",
            "## Where a new group begins",
            ("fresh topics", "test clusters", "new cluster"),
        ),
        ("consuming", "## Where a new group begins", ("by time", "--consume no", "--to latest")),
        ("consuming", "## Order", ("another queue", "What does not hold", "one queue")),
        ("consuming", "## Duplicates", ("business key", "finished", "same transaction")),
        ("consuming", "## Not losing messages", ("try again", "dead letters", "SYNC_FLUSH")),
        ("consuming", "## Not losing messages", ("Outbox", "same\n  transaction", "SEND_OK")),
        ("consuming", "## Sizes", ("Larger batches", "repeats the whole batch", "longer pull")),
        ("consuming", "## Habits that pay", ("topic per application", "tags", "keys", "batches")),
        ("consuming", "## Habits that pay", ("skip what is not essential", "drain")),
        ("consuming", "## Habits that pay", ("autoCreateTopicEnable", "production")),
        ("delay", "## An order that was not paid", ("level 16", "30 minutes", "45m")),
    ],
)
def test_the_advice_is_there(page: str, heading: str, words: tuple[str, ...]) -> None:
    text = section(page, heading)
    assert [word for word in words if word not in text] == []


def test_name_servers_are_advised_to_be_three() -> None:
    text = (ROOT / "docs/guides/name-server.md").read_text()
    assert "they know nothing of each other" in text
    assert "three" in text
