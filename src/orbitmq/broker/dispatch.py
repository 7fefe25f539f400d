"""Request code to handler: one table.

In: a request code. Out: the plain function that serves it. What is not here is answered with code 3
by net's Dispatcher. Sends and pulls come here only when the hot core handed them back.
"""

from collections.abc import Callable, Mapping
from functools import partial

from orbitmq.broker.context import Context
from orbitmq.broker.handlers.cleaning import delete_expired_log
from orbitmq.broker.handlers.clients import get_consumer_list, heart_beat, unregister_client
from orbitmq.broker.handlers.lookups import (
    get_earliest_store_time,
    get_max_offset,
    get_min_offset,
    query_message,
    search_offset,
    view_message,
)
from orbitmq.broker.handlers.offsets import query_consumer_offset, update_consumer_offset
from orbitmq.broker.handlers.pull import pull_message
from orbitmq.broker.handlers.send import send_message
from orbitmq.net.connection import Connection, Handler, Result
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

HANDLERS: Mapping[int, Callable[[Context, Command, Connection], Result]] = {
    RequestCode.SEND_MESSAGE: send_message,
    RequestCode.SEND_MESSAGE_V2: send_message,
    RequestCode.SEND_BATCH_MESSAGE: send_message,
    RequestCode.PULL_MESSAGE: pull_message,
    RequestCode.QUERY_MESSAGE: query_message,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: search_offset,
    RequestCode.GET_MAX_OFFSET: get_max_offset,
    RequestCode.GET_MIN_OFFSET: get_min_offset,
    RequestCode.GET_EARLIEST_MSG_STORETIME: get_earliest_store_time,
    RequestCode.VIEW_MESSAGE_BY_ID: view_message,
    RequestCode.QUERY_CONSUMER_OFFSET: query_consumer_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: update_consumer_offset,
    RequestCode.HEART_BEAT: heart_beat,
    RequestCode.UNREGISTER_CLIENT: unregister_client,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: get_consumer_list,
    RequestCode.DELETE_EXPIRED_COMMITLOG: delete_expired_log,
}


def handlers_of(context: Context) -> dict[int, Handler]:
    """Give the table with the broker's parts filled in."""
    return {int(code): partial(handler, context) for code, handler in HANDLERS.items()}
