"""Requests that say who asks: the RPC hook for clusters with access control.

In: an access key and its secret. Out: requests with the fields AccessKey and Signature.

Rules:
1. Every request is signed, those to name servers as well: they ignore it.
2. Neither the secret nor who has it is in a text that is made of the hook.
"""

import msgspec

from orbitmq.wire.command import Command
from orbitmq.wire.signature import (
    ACCESS_KEY_FIELD,
    SECURITY_TOKEN_FIELD,
    SIGNATURE_FIELD,
    signature_of,
)


class Signing(msgspec.Struct, frozen=True):
    """One of a client's `rpc_hooks`: signs its requests.

    >>> Admin(namesrv, rpc_hooks=[Signing("me", "my secret")])
    """

    access_key: str
    secret_key: str
    security_token: str = ""

    def before(self, address: str, request: Command) -> None:
        """Add who asks, and the proof of it."""
        request.fields[ACCESS_KEY_FIELD] = self.access_key
        if self.security_token:
            request.fields[SECURITY_TOKEN_FIELD] = self.security_token
        signed = signature_of(self.secret_key, request.fields, request.body)
        request.fields[SIGNATURE_FIELD] = signed

    def after(self, address: str, request: Command, answer: Command) -> None:
        """Nothing: answers are not signed."""

    def __repr__(self) -> str:
        return "Signing(...)"
