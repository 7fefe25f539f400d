"""What a broker has done: messages taken in and given out, by topic and group.

In: counts from the handlers. Out: totals, for metrics and for the tables that tools read.
"""

from collections import Counter


class BrokerStats:
    """The counts of one broker since its start."""

    def __init__(self) -> None:
        self.got_count: Counter[tuple[str, str]] = Counter()
        """(topic, group) to messages given to the group's pulls."""
        self.got_bytes: Counter[tuple[str, str]] = Counter()
        self.sent_back_count: Counter[tuple[str, str]] = Counter()
        """(topic, group) to messages that the group gave back for a retry."""

    def note_got(self, topic: str, group: str, count: int, size: int) -> None:
        """Count messages that a pull got."""
        self.got_count[topic, group] += count
        self.got_bytes[topic, group] += size

    def note_sent_back(self, topic: str, group: str) -> None:
        """Count a message that a consumer could not deal with."""
        self.sent_back_count[topic, group] += 1
