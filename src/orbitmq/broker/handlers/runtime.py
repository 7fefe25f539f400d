"""What a broker tells of itself: runtime info (28) and one figure by name (315).

In: a tool's question. Out: a table of texts, or a figure over the last minute, hour and day. The
disk is asked in a thread.
"""

from orbitmq.broker.context import Context
from orbitmq.broker.runtime_info import DiskFacts, disk_table, runtime_table
from orbitmq.errors import RequestFailed
from orbitmq.net.connection import Connection, Result
from orbitmq.store.reading import NO_TIME, record_by_offset
from orbitmq.wire.bodies_runtime import RuntimeInfo, ViewBrokerStats
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import write_json
from orbitmq.wire.fields import read_header
from orbitmq.wire.record import decode_record


def get_runtime_info(context: Context, request: Command, connection: Connection) -> Result:
    """Return everything there is to know, by name.

    An original that began less than a second ago, or has no sample yet, answers 1; we do not.
    """
    store, first_offset = context.store, context.store.first_offset
    visible_offset, cleaner = store.tail.visible_offset, store.cleaner
    table = runtime_table(context)

    def read() -> Command:
        record = record_by_offset(store.reader, first_offset, visible_offset)
        first_ms = NO_TIME if record is None else decode_record(record)[0].store_ms
        disks = DiskFacts(*cleaner.look_at_disks(), cleaner.look_at_others(), first_ms)
        info = RuntimeInfo(table | disk_table(disks))
        return reply_to(request, body=write_json(info, standard=True))

    return context.cold_reads.answer(connection, request, read)


def view_broker_stats(context: Context, request: Command, _connection: Connection) -> Result:
    """Return how much one figure grew over the last minute, hour and day."""
    header = read_header(ViewBrokerStats, request.fields)
    data = context.stats.view(header.name, header.key)
    if data is None:
        name, key = header.name or "null", header.key or "null"
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"The stats <{name}> <{key}> not exist: nothing was counted under it since the start",
        )
    return reply_to(request, body=write_json(data, standard=True))
