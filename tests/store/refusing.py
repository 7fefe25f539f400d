"""Files that refuse like a full disk, for tests.

In: how much room there is, changed at any time. Out: real files, until the room is used up.
"""

from pathlib import Path

from orbitmq.errors import DiskFull
from orbitmq.world.files import BigFile, SystemFiles


class RefusingFile:
    """A file that takes a number of new bytes and then refuses like a full disk.

    What is written over what is there already needs no room.
    """

    def __init__(self, inner: BigFile, room: list[int]) -> None:
        self._inner = inner
        self._room = room
        self._high = 0
        self.size = inner.size

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        over = max(0, min(len(data), self._high - position))
        fits = over + min(len(data) - over, self._room[0])
        self._room[0] -= fits - over
        self._high = max(self._high, position + fits)
        self._inner.write_at(position, memoryview(data)[:fits])
        if fits < len(data):
            raise DiskFull("no space left")

    def read_at(self, position: int, size: int) -> bytes:
        return self._inner.read_at(position, size)

    def view(self) -> memoryview:
        return self._inner.view()

    def sync(self) -> None:
        self._inner.sync()

    def close(self) -> None:
        self._inner.close()


class RefusingFiles(SystemFiles):
    """Files that share one amount of room; `room[0]` may be changed at any time."""

    def __init__(self) -> None:
        self.room = [1 << 40]

    def open_big(self, path: Path, size: int, *, is_mapped: bool = True) -> BigFile:
        return RefusingFile(super().open_big(path, size, is_mapped=is_mapped), self.room)
