"""The settings of a broker's store: files, flush, removing old files, limits of answers.

In and out: see `settings`. Keys are those of the original's MessageStoreConfig, and so are the
defaults unless a fact says so. `broker.store_options` translates them for the store.
"""

from typing import Annotated, Literal

import msgspec

from orbitmq.config.server import ServerSettings
from orbitmq.config.settings import fact

_MIB = 1_048_576


class StoreSettings(ServerSettings, frozen=True, kw_only=True):
    """What a broker's store obeys."""

    # --- where the files are; sizes count for a new folder only, others keep theirs ---
    store_path_root_dir: Annotated[
        str,
        fact(
            "The store folder; empty takes the folder `store` of the data folder.",
            original="~/store",
        ),
    ] = ""
    store_path_commit_log: Annotated[
        str,
        fact(
            "The folder of the log, for it alone, or several with `,` between; empty takes "
            "`commitlog` of the store folder.",
            original="~/store/commitlog",
        ),
    ] = ""
    read_only_commit_log_store_paths: Annotated[
        str,
        fact(
            "Folders of the log that get no new files, with `,` between; they may be in "
            "`storePathCommitLog` as well."
        ),
    ] = ""
    multi_path_splitter: Annotated[
        str, fact("What stands between folders in the two settings above, instead of `,`.")
    ] = msgspec.field(name="rocketmq.broker.multiPathSplitter", default=",")
    mapped_file_size_commit_log: Annotated[
        int,
        fact(
            "The size of each file of the log; a message must fit one.",
            unit="bytes",
            least=131_072,
            most=2_047 * _MIB,
        ),
    ] = 1_024 * _MIB
    mapped_file_size_consume_queue: Annotated[
        int,
        fact("The size of each file of a queue.", unit="bytes", least=20, most=1_024 * _MIB),
    ] = 6_000_000
    message_index_enable: Annotated[
        bool, fact("Keep an index of message keys, so that messages can be found by them.")
    ] = True
    max_hash_slot_num: Annotated[
        int, fact("Slots of each index file.", least=1, most=100_000_000)
    ] = 5_000_000
    max_index_num: Annotated[
        int, fact("Entries of each index file.", least=2, most=100_000_000)
    ] = 20_000_000

    # --- extra units of queue entries ---
    enable_consume_queue_ext: Annotated[
        bool, fact("Keep store time and filter bits of each queue entry in consumequeue_ext.")
    ] = False
    mapped_file_size_consume_queue_ext: Annotated[
        int,
        fact("The size of each file of them.", unit="bytes", least=32_768, most=1_024 * _MIB),
    ] = 48 * _MIB

    # --- light queues ---
    enable_lmq: Annotated[
        bool, fact("Names that begin with `%LMQ%` are light queues, and groups of their readers.")
    ] = False
    enable_multi_dispatch: Annotated[
        bool,
        fact(
            "With `enableLmq`: a message is in the light queues that its property "
            "INNER_MULTI_DISPATCH names, too."
        ),
    ] = False
    max_lmq_consume_queue_num: Annotated[
        int,
        fact("Light queues that there may be.", least=1, most=10_000_000, changeable=True),
    ] = 20_000

    # --- messages ---
    max_message_size: Annotated[
        int,
        fact(
            "The largest message body.",
            unit="bytes",
            least=1_024,
            most=12 * _MIB,
            changeable=True,
        ),
    ] = 4 * _MIB
    message_delay_level: Annotated[
        str, fact("How long a message of level 1, 2, 3 … waits; units s, m, h, d.")
    ] = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    flush_delay_offset_interval: Annotated[
        int,
        fact(
            "How often it is saved up to where delayed messages are delivered.",
            unit="ms",
            least=100,
            most=600_000,
        ),
    ] = 10_000

    # --- answers ---
    max_transfer_count_on_message_in_memory: Annotated[
        int, fact("Messages in one answer to a pull.", least=1, most=1_024, changeable=True)
    ] = 32
    max_transfer_bytes_on_message_in_memory: Annotated[
        int,
        fact(
            "Bytes in one answer to a pull.",
            unit="bytes",
            least=4_096,
            most=8 * _MIB,
            changeable=True,
        ),
    ] = 262_144
    max_transfer_bytes_on_bulk_pull: Annotated[
        int,
        fact(
            "Bytes in one answer to a pull that asks for much at a time, as Spark's readers do; 0 "
            "answers it like any other.",
            unit="bytes",
            least=0,
            most=8 * _MIB,
            changeable=True,
            original="-",
        ),
    ] = 524_288
    max_transfer_count_on_message_in_disk: Annotated[
        int,
        fact(
            "Messages in one answer to a pull of old messages.",
            least=1,
            most=1_024,
            changeable=True,
        ),
    ] = 8
    max_transfer_bytes_on_message_in_disk: Annotated[
        int,
        fact(
            "Bytes in one answer to a pull of old messages.",
            unit="bytes",
            least=4_096,
            most=8 * _MIB,
            changeable=True,
        ),
    ] = 65_536
    access_message_in_memory_max_ratio: Annotated[
        int,
        fact("Messages this near to the log's end are recent.", unit="% of RAM", least=1, most=90),
    ] = 40
    default_query_max_num: Annotated[
        int,
        fact(
            "Messages in one answer to a query by unique key.", least=1, most=1_024, changeable=True
        ),
    ] = 32
    max_msgs_num_batch: Annotated[
        int,
        fact("Messages in one answer to a query by key.", least=1, most=1_024, changeable=True),
    ] = 64

    # --- flush ---
    flush_disk_type: Annotated[
        Literal["ASYNC_FLUSH", "SYNC_FLUSH"],
        fact("Whether a send is answered when the kernel has it, or when the disk has it."),
    ] = "ASYNC_FLUSH"
    sync_flush_timeout: Annotated[
        int,
        fact(
            "How long a send waits for the disk before it is answered as timed out.",
            unit="ms",
            least=10,
            most=600_000,
            changeable=True,
        ),
    ] = 5_000
    flush_interval_commit_log: Annotated[
        int,
        fact("How often the log is synced.", unit="ms", least=10, most=60_000, changeable=True),
    ] = 500
    flush_commit_log_timed: Annotated[
        bool,
        fact(
            "Whether syncs wait for that interval; false: the log is synced as soon as enough "
            "pages of it are unsynced.",
            changeable=True,
        ),
    ] = True
    flush_commit_log_least_pages: Annotated[
        int,
        fact(
            "With fewer unsynced pages of 4 KiB a sync is left for later.",
            least=0,
            most=65_536,
            changeable=True,
        ),
    ] = 4
    flush_commit_log_thorough_interval: Annotated[
        int,
        fact(
            "How often the log is synced however little it is.",
            unit="ms",
            least=10,
            most=60_000,
            changeable=True,
        ),
    ] = 10_000
    flush_interval_consume_queue: Annotated[
        int,
        fact(
            "How often queue and index entries are written.",
            unit="ms",
            least=10,
            most=60_000,
            changeable=True,
        ),
    ] = 1_000
    flush_consume_queue_thorough_interval: Annotated[
        int,
        fact("How often they are synced.", unit="ms", least=100, most=600_000, changeable=True),
    ] = 60_000
    unsynced_bytes_max: Annotated[
        int,
        fact(
            "Above so much of the log that is not synced, sends are refused.",
            unit="bytes",
            least=_MIB,
            most=65_536 * _MIB,
            original="-",
        ),
    ] = 256 * _MIB
    unsynced_millis_max: Annotated[
        int,
        fact(
            "Above this age of the oldest unsynced byte, sends are refused.",
            unit="ms",
            least=1_000,
            most=600_000,
            original="-",
        ),
    ] = 10_000

    # --- removing old files ---
    file_reserved_time: Annotated[
        int,
        fact("How long messages are kept.", unit="h", least=0, most=876_000, changeable=True),
    ] = 72
    delete_when: Annotated[
        str,
        fact(
            "The hours of the day at which old files are removed, separated by semicolons.",
            changeable=True,
        ),
    ] = "04"
    clean_resource_interval: Annotated[
        int,
        fact(
            "How often it looks for old files.",
            unit="ms",
            least=100,
            most=3_600_000,
            changeable=True,
        ),
    ] = 10_000
    delete_commit_log_files_interval: Annotated[
        int,
        fact(
            "The pause between two old files of the log that are removed.",
            unit="ms",
            least=0,
            most=60_000,
            changeable=True,
        ),
    ] = 100
    delete_consume_queue_files_interval: Annotated[
        int,
        fact(
            "The pause between two queues whose old files are removed.",
            unit="ms",
            least=0,
            most=60_000,
            changeable=True,
        ),
    ] = 100
    disk_max_used_space_ratio: Annotated[
        int,
        fact(
            "Above it old files are removed at any hour.",
            unit="% of the disk",
            least=10,
            most=95,
            changeable=True,
        ),
    ] = 75
    disk_space_clean_forcibly_ratio: Annotated[
        int,
        fact(
            "Above it the oldest files go before their time.",
            unit="% of the disk",
            least=1,
            most=99,
            changeable=True,
        ),
    ] = 85
    disk_space_clean_forcibly_fraction: Annotated[
        str,
        fact(
            "The same as a fraction, such as 0.8; counts while diskSpaceCleanForciblyRatio is 85.",
            original="0.85",
        ),
    ] = msgspec.field(name="rocketmq.broker.diskSpaceCleanForciblyRatio", default="")
    disk_space_warning_level_ratio: Annotated[
        int,
        fact(
            "Above it, and with less free than diskFreeBytesLeast, sends are refused.",
            unit="% of the disk",
            least=1,
            most=99,
            changeable=True,
        ),
    ] = 90
    disk_space_warning_level_fraction: Annotated[
        str,
        fact(
            "The same as a fraction, such as 0.8; counts while diskSpaceWarningLevelRatio is 90.",
            original="0.90",
        ),
    ] = msgspec.field(name="rocketmq.broker.diskSpaceWarningLevelRatio", default="")
    disk_free_bytes_least: Annotated[
        int,
        fact(
            "With so much free, sends are taken whatever the ratio says.",
            unit="bytes",
            least=0,
            most=1_048_576 * _MIB,
            original="-",
            changeable=True,
        ),
    ] = 5_120 * _MIB
    clean_file_forcibly_enable: Annotated[
        bool,
        fact("Whether files may go before their time when the disk gets full.", changeable=True),
    ] = True

    # --- replication (only the address is told so far) ---
    ha_listen_port: Annotated[
        int,
        fact(
            "The port that name servers are told for slaves; 0 is the port behind listenPort.",
            least=0,
            most=65_535,
            original="listenPort + 1",
            exact=True,
        ),
    ] = 0
