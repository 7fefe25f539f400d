"""Settings by name, each beside the bytes that it has in files, answers and registrations.

In: settings of topics or groups as they come and change. Out: the values, their rows, and how many
bytes these are together.

Rules:
1. A row is written when it changes, and never again: a table is made by joining its rows.
2. The size counts every row as registered. What would not fit one frame any more is refused before
   it is put; what the file held is kept, whatever its size.
"""

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

import msgspec

from orbitmq.wire.frame import FRAME_SIZE_MAX
from orbitmq.wire.ready_tables import write_row

SIZE_MAX = FRAME_SIZE_MAX - 1_048_576
"""Of all rows together, in bytes. The rest of a frame is for its header and for the changes that
are never refused: name servers make topics ordered."""

V = TypeVar("V", bound=msgspec.Struct)


class TableLimits(NamedTuple):
    """What a table may hold, and what to do when that is not enough."""

    kind: str
    count_max: int
    size_max: int
    fix: str


class EncodedRows(Generic[V]):
    """The values of one table by name, with their rows."""

    def __init__(self) -> None:
        self.values: dict[str, V] = {}
        """Not to be changed but by `put` and `remove`."""
        self._rows: dict[str, bytes] = {}
        self.size = 0
        """Of all rows as they are joined, in bytes."""

    def put(self, name: str, value: V) -> None:
        """Add a value or replace it."""
        row = write_row(name, value)
        self.size += _grows(row, self._rows.get(name))
        self.values[name] = value
        self._rows[name] = row

    def remove(self, name: str) -> V | None:
        """Take a value out and return it; None when it is not there."""
        value = self.values.pop(name, None)
        self.size -= _grows(self._rows.pop(name, b""), None) if value is not None else 0
        return value

    def written(self) -> list[bytes]:
        """Return all rows as they are now, in the order of `values`."""
        return list(self._rows.values())

    def room_fault(self, wanted: Mapping[str, V], limits: TableLimits) -> str | None:
        """Say why these cannot be put, or None when they can; a change that adds nothing always."""
        count = len(self.values)
        if count + sum(name not in self.values for name in wanted) > limits.count_max:
            return f"this broker has {count} {limits.kind}, limit {limits.count_max}; {limits.fix}"
        growth = sum(
            _grows(write_row(name, value), self._rows.get(name)) for name, value in wanted.items()
        )
        if growth > 0 and self.size + growth > limits.size_max:
            return (
                f"the settings of this broker's {count} {limits.kind} have {self.size} bytes, limit"
                f" {limits.size_max} (one frame must hold them); {limits.fix}"
            )
        return None


def _grows(row: bytes, before: bytes | None) -> int:
    """Return by how much a table grows with a row: the row and its comma."""
    return len(row) + 1 if before is None else len(row) - len(before)
