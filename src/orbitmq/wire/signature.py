"""The signature of a request, as brokers with access control want it.

In: a request's ext fields and body, and the secret of its access key. Out: the text of the field
`Signature`.

Rule: signed are the values of all fields but the signature itself, in the order of their names'
bytes, and then the body. Answers are not signed.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping

ACCESS_KEY_FIELD = "AccessKey"
SIGNATURE_FIELD = "Signature"
SECURITY_TOKEN_FIELD = "SecurityToken"  # noqa: S105 - a field's name


def signature_of(secret_key: str, fields: Mapping[str, str], body: bytes) -> str:
    """Return the signature of a request with these fields and this body."""
    names = sorted(name for name in fields if name != SIGNATURE_FIELD)
    values = "".join(fields[name] for name in names)
    signed = hmac.new(secret_key.encode(), values.encode() + body, hashlib.sha1)
    return base64.b64encode(signed.digest()).decode("ascii")
