"""A stream's progress as the offsets of a consumer group: lag, for the usual tools.

In: options of a source, and offsets as Spark reports them. Out: offsets at the brokers.

Rule: what a query reads next is in its checkpoint. The group's offsets are for those who look on.
"""

from collections.abc import Mapping

import msgspec

from orbitmq.errors import SettingError
from orbitmq.spark.cluster import Retries, cluster_of
from orbitmq.spark.offsets import Offsets, offsets_in
from orbitmq.spark.topic_options import TopicOptions, topic_options

ONCE = Retries(0, 0.0)


def commit_offsets(given: Mapping[str, str], offsets_json: str) -> None:
    """Have brokers keep offsets that a query's progress reports, for the group of its source.

    `given` are the options of the source: `consumerGroup`, and how to reach the cluster. Raises
    SettingError for options or JSON that are not a topic source's, MQError when a broker fails.
    """
    options = topic_options(given, is_stream=True)
    try:
        offsets = offsets_in(msgspec.json.decode(offsets_json, type=dict))
    except (msgspec.DecodeError, AttributeError) as error:
        raise SettingError(f"these are no offsets of a topic source: {error}") from None
    store_progress(options, offsets)


def store_progress(options: TopicOptions, offsets: Offsets) -> None:
    """Have brokers keep the group's offsets; raises MQError."""
    cluster_of(options).store_group_offsets(options.group, offsets, ONCE)
