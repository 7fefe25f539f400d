"""A table that a broker keeps: values in memory, a JSON file that is replaced as a whole.

In: changes of the table. Out: the file, in the original's form, and its `.bak`.

Rules:
1. A change marks the table; the broker's saver writes marked tables, in a thread, one by one. What
   is to be written is taken on the loop, and made into bytes in the thread: a big table holds up
   nobody.
2. A save that fails marks the table again: what is in memory is written by the next save.
3. For a file that is missing or empty its `.bak` is read, as the original does. One that cannot be
   read is an error that names it: nothing is overwritten because it could not be understood.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from orbitmq.errors import RemoteProtocolError, StoreError
from orbitmq.watermark import Watermark
from orbitmq.wire.fastjson import read_json, write_json
from orbitmq.world.files import Files

T = TypeVar("T", bound=msgspec.Struct)

WAITING_MAX = 10_000
"""So many answers wait for the save of one table, as long as its disk hangs."""

Contents = Callable[[], Callable[[], bytes]]
"""Called on the loop it takes the table as it is; what it gives may run in a thread."""


def written(snapshot: Callable[[], msgspec.Struct]) -> Contents:
    """The contents of a small table: a snapshot, which nobody changes afterwards, as JSON."""

    def take() -> Callable[[], bytes]:
        value = snapshot()
        return lambda: write_json(value, standard=False)

    return take


class TableFile:
    """One table's file. `contents` gives what to write at any moment."""

    def __init__(self, files: Files, path: Path, contents: Contents) -> None:
        self._files = files
        self._path = path
        self._contents = contents
        self.last_mark = 0
        """The number of the last change."""
        self.on_saved: Callable[[], None] = lambda: None
        """Called on the loop after each save."""
        self.saved = Watermark(waiters_max=WAITING_MAX)
        """The number of the newest change that is in the file. The thread that saves moves it; who
        waits for it is told on the loop."""
        self._taken = 0

    def load(self, body_type: type[T]) -> T | None:
        """Return what the file or else its backup holds; None when there is neither."""
        backup = self._path.with_name(self._path.name + ".bak")
        for path in (self._path, backup):
            data = self._read(path)
            if data:
                return self._parse(path, data, body_type)
        return None

    def _read(self, path: Path) -> bytes | None:
        try:
            return self._files.read(path)
        except OSError as error:
            raise StoreError(
                f"cannot read {path}: {error.strerror}; it must be a file that this user may read"
            ) from error

    def _parse(self, path: Path, data: bytes, body_type: type[T]) -> T:
        try:
            return read_json(data, body_type)
        except RemoteProtocolError as error:
            raise StoreError(
                f"cannot read {path}: {error.detail}; mend it, or remove it to use its .bak"
            ) from None

    def mark(self) -> int:
        """Say that the table has changed; gives the number of this change, for `saved`."""
        self.last_mark += 1
        return self.last_mark

    def take(self) -> Callable[[], None] | None:
        """Return the action that saves the table as it is now, or None when nothing has changed.

        The action may run in a thread: it touches the file only, and what is known of it.
        """
        if self._taken == self.last_mark:
            return None
        mark = self._taken = self.last_mark
        encode = self._contents()
        return lambda: self._save(encode, mark)

    def _save(self, encode: Callable[[], bytes], mark: int) -> None:
        try:
            self._files.replace(self._path, encode(), keep_backup=True)
        except BaseException:
            self._taken = self.saved.number
            raise
        self.saved.advance(mark)
