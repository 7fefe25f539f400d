"""Options of Spark sources: typed values, and errors that name option, value and remedy."""

from typing import Annotated, ClassVar, Literal

import pytest

from orbitmq.errors import SettingError
from orbitmq.spark.options import Count, Options, choices_of, doc, option_fields, read_options


class Sample(Options, frozen=True, kw_only=True):
    """Options of a source that exists only here."""

    PREFIXES: ClassVar[tuple[str, ...]] = ("rocketmq.client.",)

    topic: Annotated[str, doc("The topic.")]
    max_rows: Annotated[Count | None, doc("At most so many.")] = None
    secret_key: Annotated[str, doc("Signs requests.", is_secret=True)] = ""
    on_end: Annotated[Literal["stop", "wait"], doc("What to do at the end.")] = "stop"
    is_loud: Annotated[bool, doc("Say more.")] = False


def read(**given: str) -> Sample:
    return read_options(Sample, {"topic": "orders", **given}, "sample")


def test_values_become_typed_whatever_the_case_of_their_names() -> None:
    found = read(MAXROWS="5", onend="wait", isLoud="true", **{"Rocketmq.Client.Zone": "b"})
    assert (found.max_rows, found.on_end, found.is_loud) == (5, "wait", True)
    assert found.others == {"rocketmq.client.zone": "b"}


def test_what_spark_adds_is_no_mistake() -> None:
    assert read(path="/somewhere", checkpointLocation="/c") == read()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"maxRow": "5"}, "did you mean 'maxRows'"),
        ({"qqqq": "5"}, "there are topic, maxRows"),
        ({"maxRows": "many"}, "option 'maxRows': 'many' is not right"),
        ({"maxRows": "0"}, ">= 1"),
        ({"onEnd": "explode"}, "one of stop, wait"),
    ],
)
def test_a_wrong_option_is_named_with_its_remedy(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        read(**given)


def test_a_missing_option_is_named() -> None:
    with pytest.raises(SettingError, match="sample needs the option 'topic'"):
        read_options(Sample, {}, "sample")


def test_every_option_tells_its_meaning_and_choices() -> None:
    fields = option_fields(Sample)
    assert list(fields) == ["topic", "maxRows", "secretKey", "onEnd", "isLoud"]
    assert choices_of(fields["onEnd"].type) == ("stop", "wait")
    assert choices_of(fields["maxRows"].type) == ()
