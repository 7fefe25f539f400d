"""What a consumer wants of a topic: the expression, and the client's own look at tags.

In: a topic and a selector (`*`, `TagA || TagB`, or SQL92). Out: what heartbeats say of it, and a
verdict on each message.

Rules:
1. Brokers compare tag codes and may let too much through, so the client compares the tags again.
   SQL is judged by brokers alone.
2. `version` is wall time in ms and only grows; a broker refuses a pull whose version is newer than
   the heartbeat it knows (code 25), so a change needs a heartbeat first.
"""

import re
from collections.abc import Mapping

import msgspec

from orbitmq.client.message import ReceivedMessage
from orbitmq.errors import LocalProtocolError, RemoteProtocolError
from orbitmq.wire.bodies_client import SQL92, TAG, SubscriptionData
from orbitmq.wire.expression import ALL, OTHER_CHARS_MAX, TagFilter, tag_code
from orbitmq.wire.names import check_topic, wrap_namespace

KINDS = (TAG, SQL92)
_OTHER_SEPARATORS = re.compile(r"[\s,;|]+(?:or\s+|and\s+)?", re.IGNORECASE)
"""What people write between tags; none of it has a meaning."""


class Selector(msgspec.Struct, frozen=True):
    """Which messages of a topic a consumer wants.

    >>> Selector.tags("paid || shipped")
    Selector(expression='paid || shipped', kind='TAG')
    >>> Selector.sql("price > 3 AND region = 'north'").kind
    'SQL92'

    Raises LocalProtocolError for an expression that names nothing, or for another kind.
    """

    expression: str = ALL
    """`*` for all messages, tags separated by `||`, or an SQL92 condition on properties."""
    kind: str = TAG
    """`TAG` or `SQL92`."""

    def __post_init__(self) -> None:
        """Refuse what no broker could use."""
        if self.kind not in KINDS:
            raise LocalProtocolError(
                f"there is no selector of kind {self.kind!r}: use Selector.tags or Selector.sql"
            )
        if self.kind == TAG:
            _tag_filter(self.expression)
        elif not self.expression.strip() or len(self.expression) > OTHER_CHARS_MAX:
            raise LocalProtocolError(
                f"an SQL selector has 1 to {OTHER_CHARS_MAX} characters, "
                f"this one has {len(self.expression)}"
            )

    @classmethod
    def tags(cls, expression: str = ALL) -> "Selector":
        """Return a selector by tags: `paid`, `paid || shipped`, `*` or nothing for all."""
        return cls(expression or ALL, TAG)

    @classmethod
    def sql(cls, expression: str) -> "Selector":
        """Return a selector by an SQL92 condition; brokers need enablePropertyFilter=true."""
        return cls(expression, SQL92)


def selector_of(selector: "Selector | str | None") -> Selector:
    """Return the selector that a program means: a text is a tag expression, None is everything."""
    return selector if isinstance(selector, Selector) else Selector.tags(selector or ALL)


def _tag_filter(expression: str) -> TagFilter:
    try:
        found = TagFilter.parse(expression)
    except RemoteProtocolError as error:
        raise LocalProtocolError(f"tag expression: {error.detail}") from None
    for tag in found.tags:
        parts = [part for part in _OTHER_SEPARATORS.split(tag) if part]
        if len(parts) > 1 or parts != [tag]:
            raise LocalProtocolError(
                f"tag expression: {expression[:80]!r} has the tag {tag[:80]!r}, which no message "
                f"can mean; separate tags by ||: '{' || '.join(parts)}'"
            )
    return found


class Subscription:
    """One topic of a consumer, with its namespace in its name."""

    __slots__ = ("_tags", "selector", "topic", "version")

    def __init__(self, topic: str, selector: Selector, version: int) -> None:
        self.topic = topic
        self.selector = selector
        self.version = version
        """When it was made or changed, in wall ms."""
        self._tags = _tags_of(selector)

    def change(self, selector: Selector, now_ms: int) -> None:
        """Want something else from now on; brokers must hear of it by a heartbeat (rule 2)."""
        self.selector = selector
        self._tags = _tags_of(selector)
        self.renew(now_ms)

    def renew(self, now_ms: int) -> None:
        """Make the version a newer one."""
        self.version = max(now_ms, self.version + 1)

    def data(self) -> SubscriptionData:
        """Return what a heartbeat says of it."""
        tags = sorted(self._tags)
        return SubscriptionData(
            topic=self.topic,
            sub_string=self.selector.expression,
            sub_version=self.version,
            expression_type=self.selector.kind,
            tags_set=tags,
            code_set=[tag_code(tag) for tag in tags],
        )

    @property
    def tags(self) -> frozenset[str]:
        """The tags it wants; empty when the client has nothing to compare."""
        return self._tags

    def accepts(self, message: ReceivedMessage) -> bool:
        """Whether a message passes, by its tag itself."""
        return not self._tags or message.tag in self._tags


def subscriptions_of(
    wanted: Mapping[str, Selector | str] | None, namespace: str, version: int
) -> dict[str, Subscription]:
    """Return the subscriptions of a map from topic to selector, by their full names.

    Raises LocalProtocolError for a topic or an expression that cannot be.
    """
    found: dict[str, Subscription] = {}
    for topic, selector in (wanted or {}).items():
        check_topic(topic)
        full = wrap_namespace(namespace, topic)
        found[full] = Subscription(full, selector_of(selector), version)
    return found


def _tags_of(selector: Selector) -> frozenset[str]:
    return _tag_filter(selector.expression).tags if selector.kind == TAG else frozenset()
