"""A queue's name for people, as errors and warnings of sources and sinks tell it.

In: a queue. Out: text.

Rule: it needs no client, for what tells of losses is used by readers of files, too.
"""

from orbitmq.wire.bodies_client import MessageQueue


def told_of(queue: MessageQueue) -> str:
    """Return a queue's name for people."""
    return f"queue {queue.queue_id} of topic {queue.topic} at broker {queue.broker_name}"
