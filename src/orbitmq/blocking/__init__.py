"""The synchronous client: what a program without an event loop imports, as `orbitmq`.

In: nothing. Out: synchronous twins of the classes in `orbitmq.aio`, and the values they share.
"""

from orbitmq.aio import (
    AllocateStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    Command,
    Compression,
    ConsistentHash,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeHook,
    DeadLetter,
    MachineRoomNearby,
    Message,
    MessageModel,
    MessageQueue,
    OffsetStore,
    PullResult,
    PullStatus,
    ReceivedMessage,
    Retry,
    RpcHook,
    Selector,
    SendContext,
    SendHook,
    SendResult,
    SendStatus,
    TlsClientSettings,
)
from orbitmq.blocking.admin import Admin
from orbitmq.blocking.producer import Producer
from orbitmq.blocking.pull_consumer import PullConsumer
from orbitmq.blocking.push_consumer import PushConsumer

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
]
