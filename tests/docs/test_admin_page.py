"""What the guide says of each mqadmin command is what the tests do with it.

In: docs/guides/admin.md and the tables of steps in tests/foreign. Out: a failure with every command
that the page says was run beside an original, or on OrbitMQ alone, and was not, or the other way.
Whether the page has every command of the tool, tests/foreign/test_examples.py asks the tool.
"""

import re
from collections.abc import Iterable, Mapping

from tests.docs.test_guides import GUIDES, commands, table
from tests.foreign import (
    admin_steps,
    test_lookups,
    test_mqadmin_consumers,
    test_mqadmin_settings,
    test_mqadmin_stats,
    test_mqadmin_topics,
    test_namesrv_originals,
)

PAGE = GUIDES["admin"]
HEAD = "| for | beside an original | on OrbitMQ alone |"


def first_words(steps: Iterable[str]) -> set[str]:
    """Return the commands of steps."""
    return {step.split()[0] for step in steps}


def named(text: str) -> set[str]:
    """Return what a text names as code."""
    return set(re.findall(r"`(\w+)`", text))


def sentence(begin: str) -> set[str]:
    """Return what the page names in the paragraph that begins so."""
    assert f"\n{begin}" in PAGE, begin
    return named(PAGE.partition(f"\n{begin}")[2].partition("\n\n")[0])


def with_twin(steps: Mapping[str, str]) -> list[str]:
    """Return the steps whose output is compared; that of some is looked at on one side only."""
    return [
        step
        for name, step in steps.items()
        if name not in test_namesrv_originals.STEPS_WITHOUT_TWIN
    ]


NAMESRV_STEPS = {**admin_steps.READING_STEPS, **admin_steps.CHANGING_STEPS}
CONSUMER_STEPS = [*test_mqadmin_consumers.STEPS.values(), test_mqadmin_consumers.STATISTICS_STEP]
BESIDE = first_words(
    [*with_twin(NAMESRV_STEPS), *test_mqadmin_topics.STEPS_4.values(), *CONSUMER_STEPS]
)
ALONE = first_words(
    [
        *NAMESRV_STEPS.values(),
        *test_lookups.STEPS.values(),
        *test_mqadmin_stats.STEPS.values(),
        *test_mqadmin_settings.STEPS,
    ]
)
BESIDE_5 = first_words(
    [
        *(admin_steps.READING_STEPS[name] for name in admin_steps.READING_STEPS_5),
        *test_mqadmin_topics.STEPS_5.values(),
    ]
)
ALONE_5 = first_words(
    [*CONSUMER_STEPS, *test_mqadmin_stats.STEPS.values(), *test_mqadmin_settings.STEPS]
)


def test_commands_beside_an_original_and_alone_are_those_of_the_tests() -> None:
    rows = table(PAGE, HEAD)
    assert set().union(*(named(row[1]) for row in rows)) == BESIDE
    assert set().union(*(named(row[2]) for row in rows)) == ALONE - BESIDE


def test_commands_of_the_newer_tool_are_those_of_the_tests() -> None:
    assert sentence("Of the 5.5.0 tool, beside an original:") == BESIDE_5
    assert sentence("Of the 5.5.0 tool, on OrbitMQ alone:") == ALONE_5 - BESIDE_5


def test_a_command_that_was_not_tried_is_run_nowhere() -> None:
    assert sentence("Not tried:") & (BESIDE | ALONE | BESIDE_5 | ALONE_5) == set()


def test_each_command_that_is_shown_was_tried() -> None:
    shown = {words[0] for name, words in commands() if name == "mqadmin"}
    assert shown <= BESIDE | ALONE
