"""Check a client's filter before it starts (46).

In: a subscription. Out: success, or why its expression cannot be used here: the client then does
not start, and its user reads the reason.
"""

from orbitmq.broker.context import Context
from orbitmq.broker.filter_choice import check_type, checked_expression
from orbitmq.net.connection import Connection, Result
from orbitmq.wire.bodies_client import TAG
from orbitmq.wire.bodies_filter import CheckClient
from orbitmq.wire.command import Command, reply_to
from orbitmq.wire.fastjson import read_request


def check_client_config(context: Context, request: Command, _connection: Connection) -> Result:
    """Say whether a subscription's expression can be used."""
    data = read_request(request.body, CheckClient).subscription_data if request.body else None
    if data is None or (data.expression_type or TAG) == TAG:
        return reply_to(request)
    check_type(context.settings, data.expression_type)
    checked_expression(data.expression_type, data.sub_string)
    return reply_to(request)
