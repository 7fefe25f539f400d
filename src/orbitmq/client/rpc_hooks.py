"""What a program may do with every request before it goes out, and with every answer.

In: hooks that a program gives a client. Out: calls of them, by `remote` and by a producer's sends.

Rules:
1. They see all that a client asks: sends, pulls, heartbeats, and what name servers are asked.
2. `before` may add fields to a request, a signature for instance. What it raises is what the
   client's method raises: a request that cannot be signed is not sent.
"""

from typing import Protocol

from orbitmq.wire.command import Command


class RpcHook(Protocol):
    """What a program gives a client as one of its `rpc_hooks`.

    >>> class Signing:
    ...     def before(self, address: str, request: Command) -> None:
    ...         request.fields["AccessKey"] = "me"
    ...     def after(self, address: str, request: Command, answer: Command) -> None:
    ...         pass
    """

    def before(self, address: str, request: Command) -> None:
        """Look at a request to an address, or add fields to it."""
        ...

    def after(self, address: str, request: Command, answer: Command) -> None:
        """Look at an answer, whatever its code."""
        ...
