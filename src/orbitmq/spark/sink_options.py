"""Options of the `rocketmq` sink: text in, typed values out, and what does not go together.

In: a writer's options. Out: SinkOptions; docs are made from its fields.

Rules:
1. Defaults lose nothing and need nothing: at least once, the topic made if the broker allows it.
2. Options that contradict each other, or a promise that cannot be kept, are errors here, in the
   program that starts the query, and not in its tasks.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from orbitmq.client.producer_settings import ORIGINAL_DEFAULT_GROUP
from orbitmq.errors import LocalProtocolError, SettingError
from orbitmq.spark.connection_options import ConnectionOptions, client_settings, resolved
from orbitmq.spark.options import Count, doc, read_options
from orbitmq.wire.names import check_topic, group_fault, is_closed_to_clients, wrap_namespace

FORMAT = "rocketmq"

Milliseconds = Annotated[int, msgspec.Meta(ge=0)]

BATCH_BYTES_MAX = 4 * 1024 * 1024
"""Brokers refuse more, unless their maxMessageSize says otherwise."""


class SinkOptions(ConnectionOptions, frozen=True, kw_only=True):
    """What can be said of a write to topics."""

    topic: Annotated[str, doc("Where all rows go; wins over the column `topic`.")] = ""
    delivery: Annotated[
        Literal["at-least-once", "idempotent", "transactional"],
        doc(
            "`at-least-once`: nothing is lost, a repeated task may store rows twice. `idempotent`:"
            " a repeated task or batch stores nothing twice. `transactional` comes later."
        ),
    ] = "at-least-once"
    idempotent: Annotated[
        bool | None, doc("Another way to write `delivery=idempotent` or `at-least-once`.")
    ] = None
    transactional: Annotated[bool | None, doc("Another way to write `delivery=transactional`.")] = (
        None
    )
    write_id: Annotated[
        str,
        doc(
            "Names a batch write with `delivery=idempotent`: the same write made again, whole or"
            " after it was cut short, stores nothing twice. Streaming queries have a name of"
            " their own, their checkpoint's; each write inside `foreachBatch` needs one beside it."
        ),
    ] = ""
    producer_group: Annotated[str, doc("The producer group that brokers are told.")] = "SPARK_SINK"
    batch_size: Annotated[Count, doc("Rows of one request at most.")] = 4_096
    batch_bytes: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=BATCH_BYTES_MAX)],
        doc("Bytes of one request, as far as rows can be parted; larger rows go one by one."),
    ] = 1024 * 1024
    requests_in_flight: Annotated[
        Count, doc("Requests of one task that wait for their answers.")
    ] = 8
    queue_selector: Annotated[
        Literal["auto", "hash", "roundRobin", "column"],
        doc(
            "Which queue a row goes to. `hash`: that of its shardingKey; rows of one key keep"
            " their order. `column`: that of queueId and brokerName; rows keep their order there."
            " `roundRobin`: the next one. `auto`: by the columns that are there."
        ),
    ] = "auto"
    send_timeout_ms: Annotated[Count, doc("How long a request waits for its answer.")] = 10_000
    retries: Annotated[
        Milliseconds,
        doc("How often a request is sent again after it failed, with growing pauses."),
    ] = 10
    compress_over: Annotated[
        Count | None,
        doc("Bodies of so many bytes and more are compressed, and sent one by one; else none."),
    ] = None
    compression: Annotated[
        Literal["zlib", "lz4", "zstd"],
        doc("How bodies are compressed; consumers older than 5.0 know zlib only."),
    ] = "zlib"
    new_topic_queues: Annotated[
        Count,
        doc("Queues of a topic that is made by writing to it, where the broker does that."),
    ] = 4
    fence_ms: Annotated[
        Milliseconds,
        doc(
            "idempotent: how long a repeated task waits for what its earlier attempt may still"
            " have on the way."
        ),
    ] = 2_000
    look_back_ms: Annotated[
        Milliseconds,
        doc(
            "idempotent: how long ago the first attempt of a write may have begun; what is older is"
            " not seen, and stored again. So far back every worker reads the topic before the"
            " first batch of a query and before each write with a writeId; later batches of a"
            " query know where they begin. Lower it where a topic is big."
        ),
    ] = 24 * 60 * 60 * 1000

    @property
    def is_idempotent(self) -> bool:
        """Whether what was stored before is left out."""
        return self.delivery == "idempotent"


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return the options of a write, the same in every process; raises SettingError."""
    options = read_options(SinkOptions, given, FORMAT)
    options = msgspec.structs.replace(resolved(options), delivery=_delivery(options))
    client_settings(options)
    if options.delivery == "transactional":
        raise SettingError(
            f"{FORMAT}: delivery=transactional comes with a later version; delivery=idempotent"
            " stores nothing twice today"
        )
    if options.write_id and not options.is_idempotent:
        raise SettingError(f"{FORMAT}: writeId means nothing without delivery=idempotent")
    _check_names(options)
    return options


def _delivery(options: SinkOptions) -> str:
    """Return how to deliver, by whichever of three options says it."""
    meant = {
        "idempotent": options.idempotent,
        "transactional": options.transactional,
    }
    wanted = [name for name, is_wanted in meant.items() if is_wanted]
    if len(wanted) > 1 or (wanted and options.delivery not in ("at-least-once", wanted[0])):
        said = ", ".join([f"delivery={options.delivery}", *(f"{name}=true" for name in wanted)])
        raise SettingError(f"{FORMAT}: {said} contradict each other; give `delivery` alone")
    if not wanted and meant.get(options.delivery) is False:
        raise SettingError(
            f"{FORMAT}: delivery={options.delivery} and {options.delivery}=false contradict each"
            " other; give `delivery` alone"
        )
    return wanted[0] if wanted else options.delivery


def _check_names(options: SinkOptions) -> None:
    fault = group_fault(options.producer_group)
    if options.producer_group == ORIGINAL_DEFAULT_GROUP:
        fault = f"group {ORIGINAL_DEFAULT_GROUP} is everybody's; give this write its own"
    if fault is not None:
        raise SettingError(f"{FORMAT}: option 'producerGroup': {fault}")
    if options.topic:
        check_sink_topic(wrap_namespace(options.namespace, options.topic))


def check_sink_topic(wrapped: str) -> None:
    """Raise SettingError when nobody can write to a topic."""
    try:
        check_topic(wrapped)
    except LocalProtocolError as error:
        raise SettingError(f"{FORMAT}: {error}") from None
    if is_closed_to_clients(wrapped):
        raise SettingError(f"{FORMAT}: topic {wrapped} belongs to the system; write to another one")
