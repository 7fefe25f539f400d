"""The asynchronous client: what a program with an event loop imports.

In: nothing. Out: the names; `orbitmq` has synchronous twins of the classes under the same names.
"""

from orbitmq.client.admin import Admin
from orbitmq.client.producer import Producer
from orbitmq.client.push import PushConsumer

__all__ = ["Admin", "Producer", "PushConsumer"]
