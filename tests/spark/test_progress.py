"""Progress of queries: rows and lag out of offsets, a line for people, metrics."""

import json

import pytest

from orbitmq.metrics import Registry
from orbitmq.spark.progress import (
    HEADS_MAX,
    QUERIES_MAX,
    BatchFacts,
    ProgressMeter,
    TopicLag,
    line_of,
    read_offsets,
    show_metrics,
)


def offsets(**topics: list[int]) -> str:
    """Return the JSON of a source: queues 0, 1, … of one broker for each topic."""
    return json.dumps(
        {
            topic: {"broker-a": {str(queue): offset for queue, offset in enumerate(queues)}}
            for topic, queues in topics.items()
        }
    )


def batch(end: str | None, latest: str | None, rows: int = 10, query: str = "orders") -> BatchFacts:
    return BatchFacts(query, 0, rows, 100.0, 0.1, [(end, latest)])


def test_offsets_are_read_by_queue() -> None:
    found = read_offsets(offsets(orders=[5, 7]))
    assert found == {("orders", "broker-a", "0"): 5, ("orders", "broker-a", "1"): 7}


@pytest.mark.parametrize(
    "text",
    [None, "", "null", "12", '{"log": 5}', '{"a": {"b": 3}}', '{"a": {"b": {"c": "x"}}}', "x"],
)
def test_offsets_of_another_source_are_left_alone(text: str | None) -> None:
    assert read_offsets(text) == {}
    figures = ProgressMeter().note(batch(text, text), 0.0)
    assert (figures.lags, figures.done_part, figures.row_count) == ((), 1.0, 10)


def test_the_lag_is_told_by_topic() -> None:
    end, latest = offsets(orders=[5, 7], refunds=[1]), offsets(orders=[6, 10], refunds=[1])
    figures = ProgressMeter().note(batch(end, latest), 5.0)
    assert figures.lags == (
        TopicLag("orders", 4, 0.0, is_at_least=True),
        TopicLag("refunds", 0, 0.0, is_at_least=False),
    )


def test_a_queue_that_no_batch_has_read_counts_whole() -> None:
    figures = ProgressMeter().note(batch(offsets(orders=[5]), offsets(orders=[5, 3])), 0.0)
    assert figures.lags[0].messages == 3


def test_an_end_behind_the_batch_is_no_negative_lag() -> None:
    """Symptom: lag of -3 when Spark's account of the newest offset is older than the batch."""
    figures = ProgressMeter().note(batch(offsets(orders=[8]), offsets(orders=[5])), 0.0)
    assert figures.lags[0].messages == 0
    figures = ProgressMeter().note(batch(offsets(orders=[8]), None), 0.0)
    assert figures.lags[0].messages == 0


def test_seconds_behind_are_since_the_end_was_where_the_query_is() -> None:
    meter = ProgressMeter()
    for now_s, end, head in [(0.0, 10, 10), (1.0, 10, 20), (2.0, 15, 30), (3.0, 20, 30)]:
        figures = meter.note(batch(offsets(orders=[end]), offsets(orders=[head])), now_s)
        found = figures.lags[0]
    assert found == TopicLag("orders", 10, 1.0, is_at_least=False)  # past 20 since 2.0
    caught_up = meter.note(batch(offsets(orders=[30]), offsets(orders=[30])), 9.0).lags[0]
    assert caught_up == TopicLag("orders", 0, 0.0, is_at_least=False)


def test_a_query_that_began_behind_says_at_least() -> None:
    meter = ProgressMeter()
    meter.note(batch(offsets(orders=[0]), offsets(orders=[1_000])), 0.0)
    found = meter.note(batch(offsets(orders=[10]), offsets(orders=[1_000])), 7.0)
    assert found.lags[0] == TopicLag("orders", 990, 7.0, is_at_least=True)
    assert "990 messages behind, more than 7.0 s" in line_of(found)


def test_moments_are_thinned_out_and_stay_in_order() -> None:
    meter = ProgressMeter()
    for number in range(10 * HEADS_MAX):
        figures = meter.note(
            batch(offsets(orders=[0]), offsets(orders=[number + 1])), float(number)
        )
    (query,) = meter._queries.values()
    heads = query._heads["orders"]
    assert len(heads._totals) <= HEADS_MAX
    assert heads._totals == sorted(set(heads._totals))
    assert figures.lags[0].seconds == pytest.approx(10 * HEADS_MAX - 1)


def test_rows_and_batches_add_up_and_the_bar_fills() -> None:
    meter = ProgressMeter()
    meter.note(batch(offsets(orders=[0]), offsets(orders=[100])), 0.0)
    figures = meter.note(batch(offsets(orders=[50]), offsets(orders=[100])), 1.0)
    assert (figures.row_count, figures.batch_count, figures.done_part) == (20, 2, 0.5)
    assert line_of(figures, has_bar=True).startswith("orders [######......]  50%  20 rows  100/s")


def test_a_topic_made_again_does_not_spoil_the_bar() -> None:
    """Once: as far back as there was still to do divided by zero, inside Spark's listener."""
    meter = ProgressMeter()
    meter.note(batch(offsets(orders=[50]), offsets(orders=[50])), 0.0)
    figures = meter.note(batch(offsets(orders=[10]), offsets(orders=[50])), 1.0)
    assert figures.done_part == 0.0


def test_ended_queries_are_forgotten_beyond_a_limit() -> None:
    meter = ProgressMeter()
    for number in range(QUERIES_MAX + 5):
        meter.note(batch(None, None, query=f"q{number}"), 0.0)
    found = [one.query for one in meter.figures()]
    assert len(found) == QUERIES_MAX
    assert found[-1] == f"q{QUERIES_MAX + 4}"


def test_metrics_show_rows_and_lag() -> None:
    meter, registry = ProgressMeter(), Registry()
    show_metrics(meter, registry)
    meter.note(batch(offsets(orders=[5]), offsets(orders=[9])), 0.0)
    lines = registry.render().splitlines()
    assert 'orbitmq_spark_rows_total{query="orders"} 10' in lines
    assert 'orbitmq_spark_lag_messages{query="orders",topic="orders"} 4' in lines
    assert 'orbitmq_spark_batch_seconds{query="orders"} 0.1' in lines
