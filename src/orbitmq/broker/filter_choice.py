"""Which messages a pull is to get: from its own expression or its group's, tags or SQL92.

In: a pull's header, what the group's members have subscribed to, the filters. Out: tag codes, or a
filter of records; or RequestFailed with the original's code and remark.

Rules:
1. With bit 4 of the sysFlag the expression of the request counts, else that of the heartbeats.
2. Retry topics are not filtered by expression, unless filterSupportRetry says so: then each message
   by the filter on the topic that it came from.
3. A filter that a pull is served with goes to the hot path for the next ones, when it is the one
   that the group's newest subscription names.
4. What a filter needs is looked up here, on the loop: the filter itself may work in a thread.
"""

from typing import NamedTuple

from orbitmq.broker.bit_maps import unit_filter
from orbitmq.broker.context import Context
from orbitmq.broker.filters import FilterTable
from orbitmq.config import BrokerSettings
from orbitmq.core import RecordFilter, SqlFilter
from orbitmq.errors import RemoteProtocolError, RequestFailed, SqlError
from orbitmq.sql import Expression, compile_expression
from orbitmq.store.queue_ext import UnitFilter
from orbitmq.wire.bodies_client import SQL92, TAG, MessageModel, SubscriptionData
from orbitmq.wire.bodies_namesrv import SubscriptionGroupConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.expression import TagFilter
from orbitmq.wire.headers_client import PULL_CLASS_FILTER, PULL_HAS_SUBSCRIPTION, PullMessage
from orbitmq.wire.names import is_retry_topic, retry_group
from orbitmq.wire.properties import RETRY_TOPIC, parse_properties
from orbitmq.wire.record import properties_of


class Choice(NamedTuple):
    """Which messages pass: by the tag codes of entries, by the records, by their extra units."""

    codes: frozenset[int] | None = None
    accepts: RecordFilter | None = None
    may_accept: UnitFilter | None = None


def choose(context: Context, header: PullMessage, group: SubscriptionGroupConfig) -> Choice:
    """Return what a pull is to get; raises RequestFailed."""
    if header.sys_flag & PULL_CLASS_FILTER:
        raise _no_classes()
    if header.sys_flag & PULL_HAS_SUBSCRIPTION:
        choice = _requested(context, header)
    else:
        choice = _subscribed(context, header, group)
    if is_retry_topic(header.topic) and context.settings.filter_support_retry:
        accepts = _retry_filter(context.filters, retry_group(header.topic) or "")
        return Choice(choice.codes, accepts)
    return choice


def _requested(context: Context, header: PullMessage) -> Choice:
    """Take the expression of the request."""
    expression_type, expression = header.expression_type or TAG, header.subscription
    if expression_type == TAG:
        return Choice(_tag_codes(expression))
    check_type(context.settings, expression_type)
    return Choice(None, _by_expression(checked_expression(expression_type, expression)))


def _subscribed(context: Context, header: PullMessage, group: SubscriptionGroupConfig) -> Choice:
    """Take what the members of the group have subscribed to."""
    data = _subscription(context, header, group)
    if data.class_filter_mode:
        raise _no_classes()
    if data.sub_version < header.sub_version:
        raise RequestFailed(
            ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
        )
    if data.expression_type == TAG:
        return Choice(_tag_codes(data.sub_string))
    found = context.filters.find(header.topic, header.consumer_group)
    if found is None:
        raise RequestFailed(
            ResponseCode.FILTER_DATA_NOT_EXIST,
            "The broker's consumer filter data is not exist!Your expression may be wrong!"
            + _reason(data),
        )
    if found.client_version < header.sub_version:
        raise RequestFailed(
            ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest"
        )
    check_type(context.settings, data.expression_type)
    accepts = _by_expression(checked_expression(found.expression_type, found.expression))
    if (data.sub_version, data.sub_string) == (found.client_version, found.expression):
        context.clients.offer_filter(header.consumer_group, data, accepts)
    return Choice(None, accepts, unit_filter(found, context.filters.bloom))


def _subscription(
    context: Context, header: PullMessage, group: SubscriptionGroupConfig
) -> SubscriptionData:
    live = context.clients.consumer_group(header.consumer_group)
    if live is None:
        raise RequestFailed(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            "the consumer's group info not exist: no heartbeat of this group has come",
        )
    if live.message_model is MessageModel.BROADCASTING and not group.consume_broadcast_enable:
        raise RequestFailed(
            ResponseCode.NO_PERMISSION,
            f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
        )
    data = live.subscriptions.get(header.topic)
    if data is None:
        raise RequestFailed(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"the consumer's subscription not exist: {header.consumer_group} has not subscribed to "
            f"{header.topic}",
        )
    return data


# --- checks, of pulls and of 46 ---


def check_type(settings: BrokerSettings, expression_type: str) -> None:
    """Refuse filters by expression while they are off."""
    if not settings.enable_property_filter:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by "
            f"{expression_type[:40]}; set enablePropertyFilter=true to allow it",
        )


def checked_expression(expression_type: str, expression: str | None) -> Expression:
    """Return the compiled expression; raises RequestFailed when there is none."""
    if expression_type != SQL92:
        reason = f"expected the type TAG or SQL92, found {expression_type[:40]}"
        raise RequestFailed(ResponseCode.SUBSCRIPTION_PARSE_FAILED, _PARSE_FAILED + reason)
    try:
        return compile_expression(expression or "")
    except SqlError as error:
        raise RequestFailed(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"{_PARSE_FAILED}{error}"
        ) from None


_PARSE_FAILED = "parse the consumer's subscription failed: "


def _tag_codes(expression: str | None) -> frozenset[int] | None:
    try:
        tags = TagFilter.parse(expression)
    except RemoteProtocolError as error:
        raise RequestFailed(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, _PARSE_FAILED + error.detail
        ) from None
    return None if tags.is_all else tags.codes


def _reason(data: SubscriptionData) -> str:
    """Say why an expression has no filter, where it is the reason."""
    try:
        compile_expression(data.sub_string)
    except SqlError as error:
        return f" It is, {error}"
    return ""


def _no_classes() -> RequestFailed:
    return RequestFailed(
        ResponseCode.SYSTEM_ERROR,
        "The broker does not support consumer to filter message by class: use TAG or SQL92",
    )


# --- filters of records ---


def _by_expression(expression: Expression) -> RecordFilter:
    """Return the filter of an expression, made at its first use."""
    accepts = expression.record_filter
    if accepts is None:
        accepts = expression.record_filter = SqlFilter(expression)
    return accepts


def _retry_filter(filters: FilterTable, group: str) -> RecordFilter | None:
    """Filter by the group's expression on the topic that a message came from."""
    expressions = {
        data.topic: checked_expression(data.expression_type, data.expression)
        for data in filters.of_group(group)
    }
    if not expressions:
        return None

    def accepts(record: memoryview) -> bool:
        properties = parse_properties(properties_of(record))
        expression = expressions.get(properties.get(RETRY_TOPIC, ""))
        return expression is None or expression.accepts(properties)

    return accepts
