"""Request code to handler: one table, made of the tables of the handler modules.

In: a request code. Out: the plain function that serves it. What is not here is answered with code 3
by net's Dispatcher; `UNSERVED` says what of 4.9.7 that is. Sends and pulls come here only when the
hot core handed them back.

Rule: every module of `handlers` has a table `HANDLERS` of the codes it serves; each code is served
by one of them.
"""

from collections.abc import Mapping
from functools import partial
from types import ModuleType

from orbitmq.broker.context import Context
from orbitmq.broker.handlers import (
    cleaning,
    client_calls,
    clients,
    connections,
    consume_stats,
    filters,
    groups,
    locks,
    lookups,
    offsets,
    pull,
    queues,
    resets,
    runtime,
    send,
    send_back,
    settings,
    topics,
)
from orbitmq.ensure import ensure
from orbitmq.net.connection import Handler
from orbitmq.wire.codes import RequestCode

MODULES: tuple[ModuleType, ...] = (
    cleaning,
    client_calls,
    clients,
    connections,
    consume_stats,
    groups,
    filters,
    locks,
    lookups,
    offsets,
    pull,
    queues,
    resets,
    runtime,
    send,
    send_back,
    settings,
    topics,
)

UNSERVED: Mapping[RequestCode, str] = {
    RequestCode.END_TRANSACTION: "transactions",
    RequestCode.RESUME_CHECK_HALF_MESSAGE: "transactions",
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: "access control",
    RequestCode.DELETE_ACL_CONFIG: "access control",
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: "access control",
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: "access control",
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: "access control",
    RequestCode.SEND_REPLY_MESSAGE: "request-reply",
    RequestCode.SEND_REPLY_MESSAGE_V2: "request-reply",
}
"""Codes that a broker of 4.9.7 serves and this one does not yet, each with its feature.

Filter servers (301, 302) are not among them: 4.9.7 answers both with 3, as we do."""


def handlers_of(context: Context) -> dict[int, Handler]:
    """Return the table with the broker's parts filled in."""
    table: dict[int, Handler] = {}
    for module in MODULES:
        for code, handler in module.HANDLERS.items():
            ensure(int(code) not in table, f"code {code} has one handler")
            table[int(code)] = partial(handler, context)
    return table
