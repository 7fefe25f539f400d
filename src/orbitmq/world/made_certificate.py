"""A certificate for trials, made up at the start and signed by itself (tls.test.mode.enable).

In: nothing. Out: a certificate for `localhost` and its key, as PEM; others with each process.

Who trusts it trusts anybody: it hides what is said from those who only listen, and proves nothing.
So it is written in plain arithmetic (ECDSA on P-256, X.509 in DER) rather than with a dependency.
The one secret that outlives the call is the key, and it is used by OpenSSL alone.
"""

import base64
import hashlib
import secrets
from functools import cache
from typing import NamedTuple

NAME = "localhost"

# The curve P-256: y² = x³ - 3x + b over the field of P, the base point's order is N.
_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_BASE = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_SIZE = 32

_INTEGER, _BITS, _OCTETS, _OID, _TEXT, _SEQUENCE, _SET = 0x02, 0x03, 0x04, 0x06, 0x0C, 0x30, 0x31
_UTC_TIME, _TIME = 0x17, 0x18
_CURVE = bytes.fromhex("06082a8648ce3d030107")
_PUBLIC_KEY = bytes.fromhex("06072a8648ce3d0201")
_SIGNED_BY = bytes.fromhex("300a06082a8648ce3d040302")
_COMMON_NAME = bytes.fromhex("0603550403")
_OTHER_NAMES = bytes.fromhex("0603551d11")

_Point = tuple[int, int]


class MadePair(NamedTuple):
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


@cache
def made_pair() -> MadePair:
    """Return the certificate of this process, made when it is first asked for: some 30 ms."""
    secret = 1 + secrets.randbelow(_N - 1)
    public = b"\4" + b"".join(part.to_bytes(_SIZE) for part in _times(secret, _BASE))
    body = _certificate_body(public)
    certificate = _der(_SEQUENCE, body, _SIGNED_BY, _der(_BITS, b"\0", _signature(secret, body)))
    key = _der(
        _SEQUENCE,
        _der(_INTEGER, b"\1"),
        _der(_OCTETS, secret.to_bytes(_SIZE)),
        _der(0xA0, _CURVE),
        _der(0xA1, _der(_BITS, b"\0", public)),
    )
    return MadePair(_pem("CERTIFICATE", certificate), _pem("EC PRIVATE KEY", key))


def _certificate_body(public: bytes) -> bytes:
    name = _der(
        _SEQUENCE,
        _der(_SET, _der(_SEQUENCE, _COMMON_NAME, _der(_TEXT, NAME.encode()))),
    )
    others = _der(_SEQUENCE, _der(0x82, NAME.encode()), _der(0x87, bytes((127, 0, 0, 1))))
    extensions = _der(_SEQUENCE, _der(_SEQUENCE, _OTHER_NAMES, _der(_OCTETS, others)))
    always = _der(_UTC_TIME, b"000101000000Z"), _der(_TIME, b"99991231235959Z")
    return _der(
        _SEQUENCE,
        _der(0xA0, _der(_INTEGER, b"\2")),
        _number(1 + secrets.randbelow(2**63)),
        _SIGNED_BY,
        name,
        _der(_SEQUENCE, *always),
        name,
        _der(_SEQUENCE, _der(_SEQUENCE, _PUBLIC_KEY, _CURVE), _der(_BITS, b"\0", public)),
        _der(0xA3, extensions),
    )


def _signature(secret: int, body: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(body).digest())
    while True:
        once = 1 + secrets.randbelow(_N - 1)
        first = _times(once, _BASE)[0] % _N
        second = pow(once, -1, _N) * (digest + first * secret) % _N
        if first and second:
            return _der(_SEQUENCE, _number(first), _number(second))


# --- the curve ---


def _times(number: int, point: _Point) -> _Point:
    """Return a point added to itself so many times, for a number from 1 to N - 1."""
    found: _Point | None = None
    for bit in f"{number:b}":
        if found is not None:
            found = _sum(found, found)
        if bit == "1":
            found = point if found is None else _sum(found, point)
    return found or point


def _sum(one: _Point, other: _Point) -> _Point:
    """Add two points; they are never opposite ones here."""
    (x1, y1), (x2, y2) = one, other
    if one == other:
        slope = 3 * (x1 * x1 - 1) * pow(2 * y1, -1, _P)
    else:
        slope = (y2 - y1) * pow(x2 - x1, -1, _P)
    x3 = (slope * slope - x1 - x2) % _P
    return x3, (slope * (x1 - x3) - y1) % _P


# --- bytes ---


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    digits = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(digits))) + digits + content


def _number(value: int) -> bytes:
    return _der(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1))


def _pem(label: str, data: bytes) -> bytes:
    text = base64.encodebytes(data).decode()
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n".encode()
