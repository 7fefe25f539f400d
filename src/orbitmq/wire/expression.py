"""Filter expressions: tags.

In: an expression as clients write it (`*`, nothing, `TagA || TagB`), or a subscription with parts
missing. Out: a TagFilter that judges tag codes, or the whole subscription.

Rules:
1. A broker compares codes (Java's string hash), so it may let too much through; a client compares
   the tags again.
2. Tags are trimmed. Only the whole expression `*` means all: inside a list it is a tag like others.
3. Of a subscription the expression is the truth: C++ clients send neither type nor tags nor codes.
   The type is then TAG, and tags and codes are always made from the expression.
"""

from functools import lru_cache

import msgspec

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.bodies_client import TAG, SubscriptionData
from orbitmq.wire.java import string_hash

ALL = "*"
TAG_SEPARATOR = "||"


EXPRESSION_CHARS_MAX = 8_192
OTHER_CHARS_MAX = 16_384
"""Of expressions of other types, which are judged elsewhere."""
TAG_COUNT_MAX = 256
"""What one subscription may cost; the originals have no limits."""

CACHED_TAG_CHARS_MAX = 255


@lru_cache(maxsize=4096)
def short_tag_code(tag: str) -> int:
    """Return the code of a tag of at most CACHED_TAG_CHARS_MAX characters, remembered."""
    return string_hash(tag)


def tag_code(tag: str) -> int:
    """Return the code of a tag as queue entries hold it; 0 for no tag."""
    return short_tag_code(tag) if len(tag) <= CACHED_TAG_CHARS_MAX else string_hash(tag)


class TagFilter(msgspec.Struct, frozen=True):
    """Which tags to let through. Without tags it lets everything through."""

    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, expression: str | None) -> "TagFilter":
        """Return the filter of a tag expression.

        Raises RemoteProtocolError for a list without any tag: the original lets nothing through
        then, which nobody can want.
        """
        if not expression or expression == ALL:
            return cls()
        if len(expression) > EXPRESSION_CHARS_MAX:
            raise _too_much(f"{len(expression)} characters", EXPRESSION_CHARS_MAX)
        tags = frozenset(filter(None, map(str.strip, expression.split(TAG_SEPARATOR))))
        if not tags:
            raise RemoteProtocolError(
                "tag-expression", f"{expression[:80]!r} names no tag; write * for all messages"
            )
        if len(tags) > TAG_COUNT_MAX:
            raise _too_much(f"{len(tags)} tags", TAG_COUNT_MAX)
        return cls(tags, frozenset(map(tag_code, tags)))

    @property
    def is_all(self) -> bool:
        """Whether everything passes."""
        return not self.codes

    def matches(self, code: int) -> bool:
        """Whether a message may pass by the tag code of its queue entry."""
        return not self.codes or code in self.codes

    def matches_tag(self, tag: str | None) -> bool:
        """Whether a message passes by its tag itself, as a client decides."""
        return not self.tags or tag in self.tags


def _too_much(what: str, limit: int) -> RemoteProtocolError:
    return RemoteProtocolError("tag-expression", f"{what} in an expression, limit {limit}")


def complete_subscription(subscription: SubscriptionData) -> SubscriptionData:
    """Return a subscription whose tags and codes are those of its expression.

    What the client says of them does not count (see bodies_client.py). Raises RemoteProtocolError
    as `TagFilter.parse` does.
    """
    expression = subscription.sub_string or ALL
    expression_type = subscription.expression_type or TAG
    if expression_type != TAG and len(expression) > OTHER_CHARS_MAX:
        raise _too_much(f"{len(expression)} characters", OTHER_CHARS_MAX)
    tags = TagFilter.parse(expression).tags if expression_type == TAG else frozenset()
    return msgspec.structs.replace(
        subscription,
        sub_string=expression,
        expression_type=expression_type,
        tags_set=sorted(tags),
        code_set=[tag_code(tag) for tag in sorted(tags)],
    )
