"""Settings over the network: show them (26), change those that are marked changeable (25).

In: requests without fields; 25 has properties text in its body. Out: all settings as properties
text with secrets hidden, and their version; or the answer to a change, once it is saved.

Difference: the original takes any key and any value with 0, also what it then ignores. Here 16
names the key that may not be changed, and 1 the value that cannot be used.
"""

import logging

from orbitmq.broker.context import Context
from orbitmq.config import render_properties
from orbitmq.net.connection import Connection, Result
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import write_json

log = logging.getLogger(__name__)


def get_settings(context: Context, request: Command, _connection: Connection) -> Result:
    """26: all settings in force."""
    version = write_json(context.changes.version, standard=True).decode()
    body = render_properties(context.settings).encode()
    return reply_to(request, fields={"version": version}, body=body)


def change_settings(context: Context, request: Command, connection: Connection) -> Result:
    """25: change settings."""
    log.info("%s asks to change settings", connection.peer)
    return context.changes.change(request)
