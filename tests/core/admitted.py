"""A slow model of `admit`: what is stored of properties, entry by entry."""

from typing import NamedTuple

from orbitmq.core import Admitted, Refusal, Way
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.expression import tag_code
from orbitmq.wire.properties import parse_properties

LIGHT = "INNER_MULTI_DISPATCH"


class Expected(NamedTuple):
    """What a record holds before the cluster's name, and what is special about its message."""

    own: bytes
    tags_code: int
    delay_level: int
    is_transactional: bool
    waits_for_sync: bool
    light_names: str

    @classmethod
    def of(cls, admitted: Admitted) -> "Expected":
        return cls(*admitted[:-1])


def expected(data: bytes, way: Way, *, takes_lights: bool = False) -> Expected | ResponseCode:
    """Return what must be stored, or the code of the refusal."""
    text = data.decode(errors="replace")
    values = parse_properties(text)
    level = 0
    if way is Way.SEND and "DELAY" in values:
        try:
            level = int(values["DELAY"])
        except ValueError:
            return ResponseCode.SYSTEM_ERROR
    is_plain = way is Way.SEND and level <= 0
    if way is not Way.AGAIN:
        timed = {
            values.get(f"TIMER_{name}", "0") for name in ("DELAY_SEC", "DELAY_MS", "DELIVER_MS")
        }
        inner = {name for name in values if name.startswith("INNER_")}
        if takes_lights and is_plain:
            inner.discard(LIGHT)
        if "\0" in text or timed != {"0"} or inner:
            return ResponseCode.MESSAGE_ILLEGAL
    kept = [entry for entry in text.split("\x02") if entry and not entry.startswith("CLUSTER\x01")]
    if is_plain:
        kept = [entry for entry in kept if entry != "WAIT\x01true"]
    if way is Way.AGAIN:
        kept = [entry for entry in kept if not entry.startswith("INNER_MULTI_")]
    own = "".join(f"{entry}\x02" for entry in kept).encode()
    code = tag_code(values.get("TAGS", ""))
    if way is Way.AGAIN:
        return Expected(own, code, 0, False, True, "")
    is_half = values.get("TRAN_MSG", "").lower() == "true"
    waits = way is not Way.SEND or values.get("WAIT") != "false"
    return Expected(own, code, level, is_half, waits, values.get(LIGHT, ""))


def found(admitted: Admitted | Refusal) -> Expected | ResponseCode:
    """Return what `admit` gave, to be compared with `expected`."""
    return admitted.code if isinstance(admitted, Refusal) else Expected.of(admitted)
