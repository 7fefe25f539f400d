"""The asynchronous client: what a program with an event loop imports.

In: nothing. Out: the public names. `orbitmq` has the same names, with synchronous twins of the four
classes that talk to a cluster.
"""

from orbitmq.client.admin import Admin
from orbitmq.client.consume_hooks import ConsumeContext, ConsumeHook
from orbitmq.client.message import Message, ReceivedMessage
from orbitmq.client.offset_stores import OffsetStore
from orbitmq.client.outcomes import DeadLetter, Retry
from orbitmq.client.producer import Producer
from orbitmq.client.pull_consumer import PullConsumer
from orbitmq.client.pulling import PullResult, PullStatus
from orbitmq.client.push import PushConsumer
from orbitmq.client.queue_choice import random_queue
from orbitmq.client.rpc_hooks import RpcHook
from orbitmq.client.send_hooks import SendContext, SendHook
from orbitmq.client.send_result import SendResult, SendStatus
from orbitmq.client.strategies import (
    AllocateStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
)
from orbitmq.client.subscriptions import Selector
from orbitmq.wire.bodies_client import ConsumeFromWhere, MessageModel, MessageQueue
from orbitmq.wire.command import Command
from orbitmq.wire.sysflag import Compression
from orbitmq.world.tls import TlsClientSettings

__all__ = [
    "Admin",
    "AllocateStrategy",
    "Averagely",
    "AveragelyByCircle",
    "ByConfig",
    "ByMachineRoom",
    "Command",
    "Compression",
    "ConsistentHash",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeHook",
    "DeadLetter",
    "MachineRoomNearby",
    "Message",
    "MessageModel",
    "MessageQueue",
    "OffsetStore",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "ReceivedMessage",
    "Retry",
    "RpcHook",
    "Selector",
    "SendContext",
    "SendHook",
    "SendResult",
    "SendStatus",
    "TlsClientSettings",
    "random_queue",
]
