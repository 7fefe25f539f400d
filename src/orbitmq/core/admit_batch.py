"""The messages of a batch, admitted: what is stored of the properties of each, and its tag code.

In: the properties of each message and those of the whole. Out: what is stored, one of each; or the
refusal of the first message that must be refused: a batch is stored as a whole or not at all.

Rules:
1. A message is admitted with the properties of the whole behind its own, like any other: `admit`.
2. The messages of one sender mostly differ in their unique ids alone. So what follows an id at the
   beginning is admitted once, and remembered for the other messages of this batch.
"""

from collections.abc import Sequence
from typing import NamedTuple

from orbitmq.core.admit import Refusal, Way, admit
from orbitmq.wire.properties import ENTRY_END, NAME_END, UNIQ_KEY

_END = ENTRY_END.encode()
_ID = (UNIQ_KEY + NAME_END).encode()
_ID_START = len(_ID)
_ID_END = _ID_START + 32


class AdmittedBatch(NamedTuple):
    """The messages of a batch by columns: one of each is a message."""

    owns: list[bytes]
    """See `Admitted.own`."""
    tags_codes: list[int]


def admit_batch(properties: Sequence[bytes], shared: bytes) -> AdmittedBatch | Refusal:
    """Return what is stored of messages with these properties; `shared` are those of the whole."""
    owns, codes = list[bytes](), list[int]()
    known: dict[bytes, tuple[bytes, int]] = {}
    for single in properties:
        text = (_closed(single) + shared if shared else single).lstrip(_END)
        start = _end_of_id(text)
        kind = text[start:]  # what begins with 0x02 follows an id
        form = known.get(kind)
        if form is None:
            admitted = admit(text, Way.BATCH)
            if isinstance(admitted, Refusal):
                return admitted
            form = known[kind] = admitted.own[start:], admitted.tags_code
        owns.append(text[:start] + form[0])
        codes.append(form[1])
    return AdmittedBatch(owns, codes)


def _closed(text: bytes) -> bytes:
    return text + _END if text and not text.endswith(_END) else text


def _end_of_id(text: bytes) -> int:
    """Return where the unique id ends that properties begin with; 0 when they begin otherwise."""
    is_id = text.startswith(_ID) and text[_ID_END : _ID_END + 1] == _END
    return _ID_END if is_id and text[_ID_START:_ID_END].isalnum() else 0
