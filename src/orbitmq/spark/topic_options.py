"""The options of reading topics through a broker.

In: a reader's options as Spark gives them. Out: TopicOptions, checked as far as no cluster is
needed for it.

Rules:
1. Exactly one option says which topics, at most one where to begin and one where to end.
2. The class is the table that the documentation is made from: a field is an option.
3. What brokers would misunderstand is refused here.
4. What a batch cannot do is refused there; what only changes how a stream goes on is warned of.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from orbitmq.client.subscriptions import Selector
from orbitmq.errors import LocalProtocolError, SettingError, SqlError
from orbitmq.spark.batch_limits import read_duration
from orbitmq.spark.cluster import Retries
from orbitmq.spark.connection_options import ConnectionOptions, resolved
from orbitmq.spark.options import Count, doc, read_options, warn_of_streams_options
from orbitmq.sql import compile_expression
from orbitmq.wire.checksum import body_crc

FORMAT = "rocketmq"

EARLIEST, LATEST, GROUP = "earliest", "latest", "group"
CHECKPOINT = "checkpoint"

NotNegative = Annotated[int, msgspec.Meta(ge=0)]

LONG_POLL_MS_MAX = 1_000
"""Spark waits that long at most when a query is stopped."""


class TopicOptions(ConnectionOptions, frozen=True, kw_only=True):
    """What `spark.read.format("rocketmq")` and `readStream` take."""

    # --- which messages ---
    topic: Annotated[str, doc("One topic.")] = ""
    topics: Annotated[str, doc("Several topics, separated by `,`.")] = ""
    topics_pattern: Annotated[
        str, doc("All topics whose whole name this regular expression matches.")
    ] = ""
    assign: Annotated[
        str, doc('Single queues: `{"topic": {"broker": [0, 1]}}`, all others are left out.')
    ] = ""
    include_system_topics: Annotated[
        bool, doc("Let a pattern match retry, dead-letter and system topics, too.")
    ] = False
    wait_for_topic_ms: Annotated[
        NotNegative, doc("How long to wait for a topic that does not exist yet.")
    ] = 0
    tags: Annotated[
        str, doc("Only messages with these tags, `a || b`; brokers choose, gaps are normal.")
    ] = ""
    sql92: Annotated[
        str,
        doc("Only messages for which this condition on properties holds; brokers choose."),
    ] = ""
    keys: Annotated[
        str,
        doc(
            "Only messages with one of these keys, separated by `,`; workers choose, for a "
            "broker's index gives 64 of a key at most."
        ),
    ] = ""

    # --- from where to where ---
    starting_offsets: Annotated[
        str,
        doc(
            "Where to begin: `earliest`, `latest` (stream only), `group`, or "
            '`{"topic": {"broker": {"0": 17}}}` with -2 for earliest and -1 for latest. '
            "By default a batch begins at `earliest`, a stream at `latest`."
        ),
    ] = ""
    starting_offsets_default: Annotated[
        Literal["earliest", "latest"],
        doc("Where queues begin that `startingOffsets` does not list, or the group has not read."),
    ] = "earliest"
    starting_timestamp: Annotated[
        str, doc("Begin with what was stored then or later: milliseconds or ISO 8601.")
    ] = ""
    starting_offsets_by_timestamp: Annotated[
        str, doc('The same for single queues: `{"topic": {"broker": {"0": 1700000000000}}}`.')
    ] = ""
    starting_offsets_by_timestamp_strategy: Annotated[
        Literal["error", "latest"], doc("What to do with a queue that has nothing that new.")
    ] = "error"
    ending_offsets: Annotated[
        str,
        doc(
            "Where to end, before that offset: `latest`, `group` or JSON as above; a stream "
            "gives nothing more from there on."
        ),
    ] = ""
    ending_timestamp: Annotated[
        str, doc("End before what was stored then; a stream goes on until there is some.")
    ] = ""
    ending_offsets_by_timestamp: Annotated[str, doc("The same for single queues.")] = ""
    new_queue_start: Annotated[
        Literal["earliest", "latest"],
        doc("Where queues begin that appear while a stream runs.", is_for_streams=True),
    ] = "earliest"
    fail_on_data_loss: Annotated[
        bool,
        doc("Fail when messages are gone before they were read; else go on behind the gap."),
    ] = True

    # --- how much at a time ---
    max_offsets_per_trigger: Annotated[
        Count | None,
        doc("At most so many messages a micro-batch, shared by backlog.", is_for_streams=True),
    ] = None
    max_bytes_per_trigger: Annotated[
        Count | None,
        doc(
            "At most about so many bytes a micro-batch, by the size of samples.",
            is_for_streams=True,
        ),
    ] = None
    min_offsets_per_trigger: Annotated[
        Count | None,
        doc("Wait for so many messages, `maxTriggerDelay` at most.", is_for_streams=True),
    ] = None
    max_trigger_delay: Annotated[
        str,
        doc(
            "How long `minOffsetsPerTrigger` may hold messages back: `15m`, `500ms`, `2h`.",
            is_for_streams=True,
        ),
    ] = "15m"
    min_partitions: Annotated[
        Count | None,
        doc("At least so many tasks; queues are split. By default one for each queue."),
    ] = None
    max_records_per_partition: Annotated[Count | None, doc("At most so many messages a task.")] = (
        None
    )
    max_bytes_per_partition: Annotated[
        Count | None, doc("At most about so many bytes a task, by the size of samples.")
    ] = None
    max_partitions: Annotated[
        Count | None, doc("At most so many tasks; each then reads several queues.")
    ] = None

    # --- progress ---
    consumer_group: Annotated[
        str, doc("The group that reads; brokers may want to know it, tools show its lag.")
    ] = ""
    group_id_prefix: Annotated[
        str,
        doc("Without `consumerGroup`: the group's name begins so and ends with a number."),
    ] = "spark-source"
    commit_offsets: Annotated[
        bool | None,
        doc(
            "Tell brokers a stream's progress as the group's. True if `consumerGroup` is given; "
            "a batch refuses it."
        ),
    ] = None
    initial_offset_store: Annotated[
        str,
        doc(
            "Where a stream's start is kept until its first batch: `checkpoint` (with the first "
            "batch's plan), `group` (as the group's offsets at the brokers), or a file's path.",
            is_for_streams=True,
        ),
    ] = CHECKPOINT

    # --- rows ---
    properties: Annotated[
        Literal["map", "string", "none"],
        doc("The column `properties`: a map, the stored text."),
    ] = "map"
    body_format: Annotated[Literal["binary", "string"], doc("The type of the column `body`.")] = (
        "binary"
    )
    decompress: Annotated[bool, doc("Decompress bodies.")] = True
    verify_crc: Annotated[bool, doc("Compare each body with its checksum.")] = False

    # --- transport ---
    pull_batch_size: Annotated[
        Count, doc("Ask for so many messages at a time; brokers have limits of their own.")
    ] = 1024
    pull_max_bytes: Annotated[
        Count | None, doc("Ask for at most so many bytes at a time; brokers of 5.x know it.")
    ] = None
    pull_timeout_ms: Annotated[
        Count,
        doc("How long a task tries to get messages from a broker that does not answer."),
    ] = 30_000
    long_poll_ms: Annotated[
        NotNegative,
        doc(
            "How long an idle stream waits for a message at a time, 1000 at most.",
            is_for_streams=True,
        ),
    ] = LONG_POLL_MS_MAX
    fetch_offset_num_retries: Annotated[
        NotNegative, doc("How often a question about offsets is asked again.")
    ] = msgspec.field(default=3, name="fetchOffset.numRetries")
    fetch_offset_retry_interval_ms: Annotated[NotNegative, doc("How long to wait before that.")] = (
        msgspec.field(default=1_000, name="fetchOffset.retryIntervalMs")
    )
    route_cache_ttl_ms: Annotated[
        NotNegative,
        doc("How often a stream looks for new topics, queues and brokers.", is_for_streams=True),
    ] = 10_000

    def __repr__(self) -> str:
        return super().__repr__()

    @property
    def group(self) -> str:
        """The group that reads: the one given, or one of its own for these topics."""
        if self.consumer_group:
            return self.consumer_group
        chosen = f"{self.topic}{self.topics}{self.topics_pattern}{self.assign}"
        return f"{self.group_id_prefix}-{body_crc(chosen.encode()):08x}"

    @property
    def commits(self) -> bool:
        """Whether brokers store the group's progress."""
        return bool(self.consumer_group) if self.commit_offsets is None else self.commit_offsets

    @property
    def retries(self) -> Retries:
        """How questions about offsets are asked again."""
        return Retries(self.fetch_offset_num_retries, self.fetch_offset_retry_interval_ms / 1000)

    @property
    def selector(self) -> Selector | None:
        """What brokers choose by; None when they give everything."""
        if self.sql92:
            return Selector.sql(self.sql92)
        return Selector.tags(self.tags) if self.tags and self.tags.strip() != "*" else None


def topic_options(given: Mapping[str, str], *, is_stream: bool) -> TopicOptions:
    """Read options, and refuse those that contradict each other.

    Raises SettingError that names the options.
    """
    options = resolved(read_options(TopicOptions, given, FORMAT))
    _one_of(options, "topic", "topics", "topicsPattern", "assign", is_needed=True)
    _one_of(options, "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
    _one_of(options, "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    _one_of(options, "tags", "sql92")
    if options.topics and not options.topics.strip(" ,"):
        raise _wrong("topics", options.topics, "names no topic")
    if not is_stream and options.commit_offsets:
        raise _wrong("commitOffsets", "true", "is for streams: a batch has no progress")
    if not is_stream and options.starting_offsets == LATEST:
        raise _wrong("startingOffsets", LATEST, "is for streams: a batch from there is empty")
    if options.ending_offsets == EARLIEST:
        raise _wrong("endingOffsets", EARLIEST, "leaves nothing to read")
    _in_order(options, "minPartitions", "maxPartitions")
    _check_streams(options)
    try:
        _ = options.selector
    except LocalProtocolError as error:
        raise SettingError(f"{FORMAT}: option 'tags' or 'sql92': {error}") from None
    _check_sql(options)
    if not is_stream:
        warn_of_streams_options(TopicOptions, given, FORMAT)
    return options


def _check_streams(options: TopicOptions) -> None:
    """Refuse what no stream could go by, also in a batch (rule 4)."""
    _in_order(options, "minOffsetsPerTrigger", "maxOffsetsPerTrigger")
    read_duration("maxTriggerDelay", options.max_trigger_delay)
    if options.long_poll_ms > LONG_POLL_MS_MAX:
        raise _wrong("longPollMs", options.long_poll_ms, f"is {LONG_POLL_MS_MAX} at most")
    store = options.initial_offset_store
    if store not in (CHECKPOINT, GROUP) and not Path(store).is_absolute():
        why = f"is none of {CHECKPOINT}, {GROUP} and no whole path of a file"
        raise _wrong("initialOffsetStore", store, why)


def _in_order(options: TopicOptions, least_name: str, most_name: str) -> None:
    values = msgspec.to_builtins(options)
    least, most = values[least_name], values[most_name]
    if least is not None and most is not None and least > most:
        raise _wrong(least_name, least, f"is more than {most_name!r}, {most}")


def _check_sql(options: TopicOptions) -> None:
    """Refuse a condition that is none: brokers of 4.9 would give all messages (rule 3)."""
    if not options.sql92:
        return
    try:
        compile_expression(options.sql92)
    except SqlError as error:
        raise _wrong("sql92", options.sql92, f"is wrong {error}") from None


def _wrong(option: str, value: object, why: str) -> SettingError:
    return SettingError(f"{FORMAT}: option {option!r}: {str(value)!r} {why}")


def _one_of(options: TopicOptions, *names: str, is_needed: bool = False) -> None:
    values = msgspec.to_builtins(options)
    given = [name for name in names if values.get(name)]
    quoted = [repr(name) for name in given]
    if len(given) > 1:
        raise SettingError(f"{FORMAT}: give only one of the options {' and '.join(quoted)}")
    if not given and is_needed:
        wanted = ", ".join(map(repr, names))
        raise SettingError(f"{FORMAT} needs one of the options {wanted}: which messages to read")
