"""The settings of a broker that are obeyed so far; the whole table of 4.9.7 comes with the broker.

In and out: see `settings`. Keys are the original's, and so are the defaults unless a fact says so.
Keys that are not here yet are reported as unknown, with the nearest known one.
"""

from typing import Annotated

import msgspec

from orbitmq.config.server import ServerSettings
from orbitmq.config.settings import fact

_MIB = 1_048_576


class BrokerSettings(ServerSettings, frozen=True, kw_only=True):
    """What a broker obeys."""

    # --- who it is ---
    broker_cluster_name: Annotated[str, fact("The cluster it belongs to.")] = "DefaultCluster"
    broker_name: Annotated[str, fact("Its name in routes.", original="the machine's name")] = (
        "broker-a"
    )
    broker_id: Annotated[
        int, fact("0 is the master; slaves have higher numbers.", least=0, most=2**31 - 1)
    ] = 0
    broker_ip1: Annotated[
        str,
        fact(
            "The address that clients are told; empty takes the one it listens on.",
            original="the machine's first address",
        ),
    ] = msgspec.field(name="brokerIP1", default="")
    region_id: Annotated[str, fact("Told to producers with each answer.")] = "DefaultRegion"
    namesrv_addr: Annotated[
        str, fact("The name servers to register with, host:port, separated by semicolons.")
    ] = ""
    register_name_server_period: Annotated[
        int,
        fact("How often it registers again.", unit="ms", least=10_000, most=60_000),
    ] = 30_000

    # --- where it listens ---
    listen_port: Annotated[
        int, fact("The port to listen on; 0 takes any free one.", least=0, most=65_535)
    ] = 10_911

    # --- topics and groups ---
    auto_create_topic_enable: Annotated[
        bool, fact("Make a topic when the first message for it comes.")
    ] = True
    auto_create_subscription_group: Annotated[
        bool, fact("Make a consumer group when it is first used.")
    ] = True
    default_topic_queue_nums: Annotated[
        int, fact("Queues of the template topic, the most a new topic gets.", least=1, most=1_024)
    ] = 8

    # --- messages ---
    max_message_size: Annotated[
        int, fact("The largest message body.", unit="bytes", least=1_024, most=12 * _MIB)
    ] = 4 * _MIB
    max_transfer_count_on_message_in_memory: Annotated[
        int, fact("Messages in one answer to a pull.", least=1, most=1_024)
    ] = 32
    max_transfer_bytes_on_message_in_memory: Annotated[
        int, fact("Bytes in one answer to a pull.", unit="bytes", least=4_096, most=8 * _MIB)
    ] = 262_144
    access_message_in_memory_max_ratio: Annotated[
        int,
        fact("Messages this near to the log's end are recent.", unit="% of RAM", least=1, most=90),
    ] = 40

    # --- files ---
    mapped_file_size_commit_log: Annotated[
        int,
        fact(
            "The size of each file of the log; a message must fit one.",
            unit="bytes",
            least=131_072,
            most=8_192 * _MIB,
        ),
    ] = 1_024 * _MIB
    mapped_file_size_consume_queue: Annotated[
        int,
        fact("The size of each file of a queue.", unit="bytes", least=20, most=1_024 * _MIB),
    ] = 6_000_000
    flush_interval_commit_log: Annotated[
        int, fact("How often the log is synced.", unit="ms", least=10, most=60_000)
    ] = 500
    flush_interval_consume_queue: Annotated[
        int, fact("How often queue entries are written.", unit="ms", least=10, most=60_000)
    ] = 1_000
    flush_consumer_offset_interval: Annotated[
        int, fact("How often consumer offsets are saved.", unit="ms", least=100, most=600_000)
    ] = 5_000
