"""What a producer can be told beyond what every client can.

In: keyword arguments of a producer's constructor. Out: one frozen value, checked.
Rule: names, defaults and meaning follow the original's producer where it has them; the sentence of
each says what it is.
"""

from orbitmq.client.settings import ClientOptions, ClientSettings
from orbitmq.errors import SettingError
from orbitmq.wire.compression import COMPRESSION_LEVEL
from orbitmq.wire.names import group_fault
from orbitmq.wire.sysflag import Compression

MIB = 1024 * 1024
DEFAULT_GROUP = "PYTHON_PRODUCER"
ORIGINAL_DEFAULT_GROUP = "DEFAULT_PRODUCER"
"""The original refuses it, so that nobody shares a group without knowing."""


class ProducerOptions(ClientOptions, total=False):
    """Keyword arguments of a Producer; ProducerSettings says what they mean."""

    send_timeout_s: float
    retry_times_when_send_failed: int
    retry_times_when_submit_failed: int
    retry_another_broker_when_not_stored: bool
    message_bytes_max: int
    batch_bytes_max: int
    compress_from_bytes: int
    compression: Compression
    compression_level: int
    new_topic_queue_count: int
    unit_mode: bool
    avoids_slow_brokers: bool
    sends_in_flight_max: int
    bytes_in_flight_max: int
    close_timeout_s: float


class ProducerSettings(ClientSettings, frozen=True, kw_only=True):
    """How one producer sends."""

    group: str = DEFAULT_GROUP
    """The producer group: brokers list it, and ask any of its members how a transaction ended."""

    send_timeout_s: float = 3.0
    """How long a send may take, all its attempts together, unless it is told otherwise."""

    retry_times_when_send_failed: int = 2
    """How often `send` and `send_batch` try again, at another broker if there is one."""

    retry_times_when_submit_failed: int = 2
    """How often `submit` tries again, at the same broker, when it gave no answer."""

    retry_another_broker_when_not_stored: bool = False
    """Send again when a broker has the message but its disk or slave has not yet."""

    message_bytes_max: int = 4 * MIB
    """The greatest body, before it is compressed. Brokers have a limit of their own."""

    batch_bytes_max: int = 1 * MIB
    """What `send_batch` puts into one request, as far as the messages can be parted."""

    compress_from_bytes: int = 4_096
    """Bodies of this size and more are compressed, unless they grow by it; those of batches never
    are."""

    compression: Compression = Compression.ZLIB
    """How. Consumers older than 5.0 understand ZLIB only."""

    compression_level: int = COMPRESSION_LEVEL
    """1 is fast, 9 is small."""

    new_topic_queue_count: int = 4
    """How many queues a topic gets that is made by sending to it, at most the template's."""

    unit_mode: bool = False
    """Marks the topics that are made by sending to them as those of one of the original's units."""

    avoids_slow_brokers: bool = False
    """Leave out brokers for a while that failed or took more than half a second to answer."""

    sends_in_flight_max: int = 10_000
    """Sends without an answer yet. At the limit `send` waits and `submit` raises LimitExceeded."""

    bytes_in_flight_max: int = 32 * MIB
    """Bodies of those sends together; the same holds."""

    close_timeout_s: float = 10.0
    """How long `close` waits for the answers to what is in flight."""


def check_settings(settings: ProducerSettings) -> None:
    """Raise SettingError for what cannot be used."""
    fault = group_fault(settings.group)
    if settings.group == ORIGINAL_DEFAULT_GROUP:
        fault = f"group {ORIGINAL_DEFAULT_GROUP} is not to be used; give the producer its own group"
    if fault is not None:
        raise SettingError(fault)
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        least = 0 if name.startswith(("retry_", "compression_level")) else 1
        if type(value) is int and value < least:
            raise SettingError(f"{name} is {value}, the least is {least}")
        if type(value) is float and value <= 0:
            raise SettingError(f"{name} is {value}; give a positive number of seconds")
    if settings.compression_level > 9:
        raise SettingError(f"compression_level is {settings.compression_level}, the most is 9")
