"""OrbitMQ: a message broker in Python that speaks Apache RocketMQ's protocol and keeps its files.

Programs import the synchronous client from here and the asynchronous one from `orbitmq.aio`.
The layers, top to bottom (an import may only go down; see docs/internals/layout.md):
cli > app, testing, blocking > aio > client, broker, namesrv > net > store > core > wire > world >
config, metrics > errors, ensure.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from orbitmq.blocking import *  # noqa: F403 - the names of blocking.__all__, for type checkers
else:

    def __getattr__(name: str) -> Any:
        """Load the client when a program asks for one of its names: a broker needs none of it."""
        if name == "__all__" or not name.startswith("_"):
            client = importlib.import_module("orbitmq.blocking")
            if name == "__all__" or name in client.__all__:
                return getattr(client, name)
        raise AttributeError(f"module 'orbitmq' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return [*importlib.import_module("orbitmq.blocking").__all__, "__version__"]
