"""What a broker said of a message it has stored.

In: the answer to a send. Out: a SendResult.
Rule: a SendResult means that the broker has the message. Its status says whether the disk and the
slaves, if the broker waits for them, have it as well.
"""

from enum import Enum

import msgspec

from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.codes import ResponseCode


class SendStatus(Enum):
    """How safe a stored message is."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """It is in the broker's memory; the disk took too long."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """The master has it; the slave took too long."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """The master has it; there is no slave that could."""


SEND_OK = SendStatus.SEND_OK

STATUS_OF: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """One stored message."""

    status: SendStatus
    message_id: str
    """The id the producer gave it; look-ups find it by this one."""
    offset_id: str
    """The id that says where it is stored. Empty when a broker gives none for a batch's message."""
    queue: MessageQueue
    queue_offset: int
    transaction_id: str = ""
    region_id: str = ""
    """The broker's region."""
