"""For the tests of programs that use OrbitMQ or RocketMQ: a real broker inside the test process.

`EmbeddedBroker` is a name server and a broker with ports by the operating system, files in a
temporary folder, and time that can be moved. The fixtures `orbitmq_broker` and `orbitmq_topic` are
there as soon as the package is installed beside pytest. docs/guides/testing.md shows how to use them.

pytest loads the fixtures at every start; so the broker itself is imported when it is first wanted.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.testing.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker"]


def __getattr__(name: str) -> object:
    if name == "EmbeddedBroker":
        from orbitmq.testing.embedded import EmbeddedBroker  # noqa: PLC0415 - see the head

        return EmbeddedBroker
    raise AttributeError(f"module {__name__} has no attribute {name}")
