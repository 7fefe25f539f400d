"""The options of reading a store folder without a broker.

In: a reader's options as Spark gives them. Out: LogOptions, checked as far as no file is needed.

Rules:
1. The class is the table that the documentation is made from: a field is an option.
2. Times are those at which brokers stored messages; beginnings count, ends do not.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from orbitmq.errors import RemoteProtocolError, SettingError
from orbitmq.spark.options import Count, Options, doc, read_options, read_time_ms
from orbitmq.wire.expression import TagFilter

FORMAT = "rocketmq_log"
QUEUE_ID_MAX = 2**31 - 1

NotNegative = Annotated[int, msgspec.Meta(ge=0)]
SPLIT_SIZE_BYTES = 128 << 20
SPLIT_SIZE_BYTES_MIN = 4_096


class LogOptions(Options, frozen=True, kw_only=True):
    """What `spark.read.format("rocketmq_log")` and `readStream` take."""

    # --- which records ---
    path: Annotated[
        str,
        doc("A store folder, folders of its log, or files of it; several with `,` between."),
    ]
    topic: Annotated[str, doc("Only this topic.")] = ""
    topics: Annotated[str, doc("Only these topics, separated by `,`.")] = ""
    queues: Annotated[str, doc("Only queues with these numbers, separated by `,`.")] = ""
    tags: Annotated[str, doc("Only messages with these tags, `a || b`.")] = ""
    starting_physical_offset: Annotated[
        NotNegative | None,
        doc("The log offset to begin at; records that begin before are out."),
    ] = None
    ending_physical_offset: Annotated[
        NotNegative | None, doc("The log offset to end at; a stream stays there.")
    ] = None
    starting_timestamp: Annotated[
        str, doc("Only what was stored then or later: milliseconds or ISO 8601.")
    ] = ""
    ending_timestamp: Annotated[
        str, doc("Only what was stored before: milliseconds or ISO 8601.")
    ] = ""

    # --- shape of rows ---
    properties: Annotated[
        Literal["map", "string", "none"],
        doc("Properties as a map, as stored, or not at all."),
    ] = "map"
    body_format: Annotated[
        Literal["binary", "string"], doc("Bodies as bytes, or as text in UTF-8.")
    ] = "binary"
    decompress: Annotated[bool, doc("Give compressed bodies as they were sent.")] = True
    include_raw: Annotated[bool, doc("Add the column `raw`, the whole record as stored.")] = False
    broker_name: Annotated[
        str,
        doc("What the column `brokerName` shows: a store does not know its broker's name."),
    ] = ""

    # --- damage and loss ---
    verify_crc: Annotated[bool, doc("Check the CRC of each body; a wrong one is damage.")] = False
    on_corrupt_record: Annotated[
        Literal["fail", "skip", "quarantine"],
        doc(
            "What damage does: fail the query, be skipped with a warning, or be a row whose column"
            " `damage` says why."
        ),
    ] = "fail"
    fail_on_data_loss: Annotated[
        bool, doc("Fail when files were removed before they were read, or go on behind them.")
    ] = True

    # --- speed ---
    use_consume_queue: Annotated[
        Literal["auto", "true", "false"],
        doc(
            "Look up topics, queues, tags and times in the queue files: where these are complete"
            " (auto), everywhere (true), or nowhere, and read the whole log (false)."
        ),
    ] = "auto"
    split_size_bytes: Annotated[
        Annotated[int, msgspec.Meta(ge=SPLIT_SIZE_BYTES_MIN)],
        doc("Bytes of the log per task."),
    ] = SPLIT_SIZE_BYTES
    max_bytes_per_trigger: Annotated[
        Count | None, doc("Bytes of the log per micro-batch.", is_for_streams=True)
    ] = None

    @property
    def chosen_topics(self) -> frozenset[str]:
        """The topics; none means all."""
        names = (self.topic, *self.topics.split(","))
        return frozenset(name.strip() for name in names if name.strip())

    @property
    def chosen_queues(self) -> frozenset[int]:
        """The numbers of the queues; none means all."""
        return frozenset(int(each) for each in self.queues.split(",") if each.strip())

    @property
    def tag_filter(self) -> TagFilter:
        """Which tags pass."""
        return TagFilter.parse(self.tags)

    @property
    def is_chosen(self) -> bool:
        """Whether queue files can tell what is wanted: by topics, queues or tags."""
        return bool(self.chosen_topics or self.chosen_queues or self.tag_filter.tags)

    @property
    def starting_ms(self) -> int | None:
        """The first store time, if there is one."""
        return _time_ms("startingTimestamp", self.starting_timestamp)

    @property
    def ending_ms(self) -> int | None:
        """The first store time that is out, if there is one."""
        return _time_ms("endingTimestamp", self.ending_timestamp)


def log_options(given: Mapping[str, str]) -> LogOptions:
    """Return the options; raises SettingError that names the one that is not right."""
    options = read_options(LogOptions, given, FORMAT)
    if options.topic and options.topics:
        raise SettingError(f"{FORMAT}: options 'topic' and 'topics' are both given; give one")
    if not options.path.strip(" ,"):
        raise SettingError(f"{FORMAT}: option 'path' is empty; give a store folder")
    _check_queues(options)
    try:
        _ = options.tag_filter
    except RemoteProtocolError as error:
        raise SettingError(f"{FORMAT}: option 'tags': {error.detail}") from None
    begin, end = options.starting_ms, options.ending_ms
    if begin is not None and end is not None and end < begin:
        raise SettingError(f"{FORMAT}: 'endingTimestamp' is before 'startingTimestamp'")
    _check_span(options)
    return options


def _check_queues(options: LogOptions) -> None:
    try:
        is_right = all(0 <= queue <= QUEUE_ID_MAX for queue in options.chosen_queues)
    except ValueError:
        is_right = False
    if not is_right:
        raise SettingError(
            f"{FORMAT}: option 'queues': {options.queues!r} is not right: "
            f"it is numbers from 0 to {QUEUE_ID_MAX} with ',' between them"
        )


def _check_span(options: LogOptions) -> None:
    first, last = options.starting_physical_offset, options.ending_physical_offset
    if first is not None and last is not None and last < first:
        raise SettingError(f"{FORMAT}: 'endingPhysicalOffset' is before 'startingPhysicalOffset'")
    if options.use_consume_queue == "true" and not options.is_chosen:
        raise SettingError(
            f"{FORMAT}: option 'useConsumeQueue' as true needs 'topic', 'topics', 'queues' or "
            "'tags': these are what queue files tell"
        )


def _time_ms(name: str, text: str) -> int | None:
    return read_time_ms(name, text, FORMAT) if text.strip() else None
