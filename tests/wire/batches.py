"""The messages of a batch one by one, for tests: the program itself has them by columns.

In: the body of a batch. Out: its messages, or RemoteProtocolError.
"""

from orbitmq.wire.batch import BatchMessage, decode_batch


def messages_in(data: bytes) -> list[BatchMessage]:
    """Return the messages of a batch body."""
    return list(map(BatchMessage, *decode_batch(data)))
