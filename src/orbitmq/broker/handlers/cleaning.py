"""Removing old files by hand: delete expired log files (329).

In: an operator's word. Out: an answer at once; the next looks of the cleaner do the work, one look
each `cleanResourceInterval`. Age counts as always: only the hour and the fullness do not.
"""

from orbitmq.broker.context import Context
from orbitmq.net.connection import Connection, Result
from orbitmq.wire.command import Command, reply_to


def delete_expired_log(context: Context, request: Command, _connection: Connection) -> Result:
    """Have the log files that are older than `fileReservedTime` removed, whatever the hour is."""
    context.store.cleaner.ask_manual()
    return reply_to(request)
