"""`MemoryFiles`: the file system as a value, for tests that cut the power, kill and refuse.

In: the calls of `Files`, failures to come, and the place in the log of operations where a crash
strikes. Out: what SystemFiles would give, `ops`, and images: other MemoryFiles that hold what the
crash left. The sequences of `file_steps` run here as in SystemFiles, so their tearing is real.

    files = MemoryFiles(Path("/store"))          # a folder that is on the disk already
    ... run the store on it ...
    for upto in range(len(files.ops) + 1):
        recovered = files.image(upto, some(seed=upto))      # or nothing(), everything(), ...

Rules:
1. A name is on the disk after its folder was synced; a content after its file was synced.
2. Failures are told with `fail`; a sync that fails never makes its writes safe, nor does the next.
"""

import errno
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from orbitmq.ensure import BrokenInvariant, ensure
from orbitmq.errors import ReadFailed, StoreError
from orbitmq.world import file_steps
from orbitmq.world.big_file import BigFile, wrong_size
from orbitmq.world.file_steps import refused, refusing
from orbitmq.world.files import NO_FILE, AnyPath, FolderLock, Space
from orbitmq.world.folder_lock import held_elsewhere, taken_here
from tests.world.crash_images import Chooser, CrashDisk, Unit
from tests.world.memory_disk import EMPTY, Failure, MemoryDisk, Op, Tree, Trouble

_TIB = 1 << 40
_BLOCK_SIZE = 4_096


class MemoryFiles:
    """Files in memory. `space_now` and `now_ms` (for modified_ms) may be set at any time."""

    def __init__(self, *folders: Path, tree: Tree = EMPTY) -> None:
        self._disk = MemoryDisk(tree)
        self._crash: CrashDisk | None = None
        self._locked: set[int] = set()
        self.space_now = Space(_TIB, _TIB)
        self.spaces: dict[Path, Space] = {}
        """Folders on disks of their own."""
        self.unwritable: set[Path] = set()
        for folder in folders:
            self._disk.make_folders(folder)
            self.forget_ops()

    # ---- what a test does ----------------------------------------------------------------------

    @property
    def ops(self) -> list[Op]:
        """Every change so far, in order."""
        return self._disk.ops

    @property
    def has_nameless(self) -> bool:
        """Whether files can be made before they have a name; not every file system can do that."""
        return self._disk.has_nameless

    @has_nameless.setter
    def has_nameless(self, value: bool) -> None:
        self._disk.has_nameless = value

    @property
    def now_ms(self) -> int:
        """What a change sets modified_ms to."""
        return self._disk.now_ms

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        self._disk.now_ms = value

    def fail(
        self,
        kind: str,
        when: int | Callable[[Op], bool] = 1,
        trouble: Trouble = errno.EIO,
        *,
        times: int | None = 1,
    ) -> None:
        """Make operations of a kind fail: from the n-th to come on, or those that `when` accepts.

        `kind` is read, write, sync (of files and folders), create, resize, rename, link, remove,
        make_folder or sync_folder. `times` is how often; None means for ever.
        """
        self._disk.failures.append(Failure(kind, when, trouble, times))

    def heal(self) -> None:
        """Let nothing fail any more."""
        self._disk.failures.clear()

    def put(self, path: Path, data: bytes) -> None:
        """Place a file as if it had always been there; forgets `ops` as `forget_ops` does."""
        self._disk.make_folders(path.parent)
        self._disk.write_whole(path, [(0, data)], len(data))
        self.forget_ops()

    def forget_ops(self) -> None:
        """Take all that is there as being on the disk, and begin a new log of operations."""
        self._disk.settle()
        self._crash = None

    def contents(self) -> dict[Path, bytes]:
        """Return every file there is, by path."""
        with self._disk.guard:
            return dict(self._disk.walk())

    def units(self, upto: int) -> Sequence[Unit]:
        """Return what a power cut after `upto` operations may keep or lose, piece by piece."""
        return self._crashed(upto).units()

    def image(self, upto: int, choose: Chooser) -> "MemoryFiles":
        """Return what a power cut after `upto` operations leaves."""
        crash = self._crashed(upto)
        return MemoryFiles(tree=crash.image(choose(crash.units())))

    def kill_image(self, upto: int) -> "MemoryFiles":
        """Return what a killed process leaves after `upto` operations: all that the kernel had."""
        return MemoryFiles(tree=self._crashed(upto).current())

    def _crashed(self, upto: int) -> CrashDisk:
        ensure(0 <= upto <= len(self.ops), f"there are {len(self.ops)} operations, not {upto}")
        if self._crash is None or self._crash.upto > upto:
            self._crash = CrashDisk(self._disk.tree)
        self._crash.play(self.ops, upto)
        return self._crash

    # ---- Files: looking ------------------------------------------------------------------------

    def read(self, path: Path) -> bytes | None:
        with self._disk.guard:
            try:
                node = self._disk.file(path)
            except FileNotFoundError:
                return None
            return self._disk.read_node(node, path, 0, len(self._disk.contents[node]))

    def read_at(self, path: AnyPath, position: int, size: int) -> bytes | None:
        return self._disk.read_at(Path(path), position, size)

    def data_ranges(self, path: Path, start: int) -> list[tuple[int, int]]:
        """Return the blocks that are not all zeros: as many holes as a file system can make."""
        data = self._disk.read_at(path, 0, self._disk.size(path) or 0) or b""
        ends = [*range(start - start % _BLOCK_SIZE + _BLOCK_SIZE, len(data), _BLOCK_SIZE)]
        blocks = pairwise([start, *ends, len(data)])
        return [(begin, end) for begin, end in blocks if any(data[begin:end])]

    def is_zeros(self, path: AnyPath, position: int, size: int) -> bool | None:
        data = self.read_at(path, position, size + 1)
        if data is None:
            return None
        return data == bytes(size) and self.size(Path(path)) == position + size

    def size(self, path: Path) -> int | None:
        return self._disk.size(path)

    def modified_ms(self, path: Path) -> int | None:
        with self._disk.guard:
            node = self._disk.known(path)
            return None if node is None else self._disk.modified_ms.get(node, 0)

    def is_folder(self, path: Path) -> bool:
        with self._disk.guard:
            return self._disk.known(path) in self._disk.folders

    def can_write(self, path: Path) -> bool:
        return self.is_folder(path) and path not in self.unwritable

    def names(self, path: AnyPath) -> list[str]:
        with self._disk.guard:
            try:
                return sorted(self._disk.folders[self._disk.folder_of(Path(path) / "_")])
            except FileNotFoundError:
                return []
            except OSError as error:
                raise refused(error, "list", path) from error

    def listing(self, path: AnyPath) -> list[tuple[str, int]] | None:
        folder = Path(path)
        if not self.is_folder(folder):
            return None
        sizes = ((name, self.size(folder / name)) for name in self.names(folder))
        return [(name, NO_FILE if size is None else size) for name, size in sizes]

    def space(self, path: Path) -> Space:
        if not self._disk.is_there(path):
            raise ReadFailed(f"cannot ask the space of {path}: it is not there")
        return self.spaces.get(path, self.space_now)

    # ---- Files: changing -----------------------------------------------------------------------

    def replace(self, path: Path, data: bytes, *, keep_backup: bool = False) -> None:
        with refusing("replace", path):
            file_steps.replace(self._disk, path, bytes(data), keep_backup=keep_backup)

    def reserve(self, path: Path, size: int) -> None:
        with refusing(f"reserve {size} bytes for", path):
            file_steps.reserve(self._disk, path, size)

    def resize(self, path: Path, size: int) -> None:
        with refusing(f"give {size} bytes to", path):
            self._disk.resize(self._disk.file(path), path, size)

    def copy(self, path: Path, target: Path, start: int = 0, size: int | None = None) -> None:
        with refusing(f"copy {path} to", target):
            file_steps.copy(self._disk, path, target, start, size)

    def move(self, path: Path, target: Path) -> None:
        with refusing(f"move {path} to", target):
            file_steps.move(self._disk, path, target)

    def remove(self, path: Path) -> None:
        with refusing("remove", path):
            self._disk.unlink(path)

    def make_folder(self, path: Path) -> None:
        with refusing("make folder", path):
            self._disk.make_folders(path)

    def remove_folder(self, path: Path) -> None:
        try:
            self._disk.remove_folder(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise refused(error, "remove folder", path) from error

    def sync(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self._disk.sync_folder(path)

    def open_big(self, path: Path, size: int, *, is_mapped: bool = True) -> BigFile:
        with self._disk.guard, refusing("open", path):
            if self.has_nameless and not self._disk.is_there(path):
                self._disk.make_nameless(path, size, is_synced=False)
            node = self._disk.create(path)
            present = len(self._disk.contents[node])
            if present not in (0, size):
                raise StoreError(wrong_size(path, present, size))
            if present != size:
                self._disk.resize(node, path, size)
            return MemoryBigFile(self._disk, node, path, is_mapped=is_mapped)

    def lock(self, path: Path) -> FolderLock:
        with self._disk.guard, refusing("open", path):
            node = self._disk.create(path)
            if node in self._locked:
                raise StoreError(taken_here(path))
            self._disk.write(node, path, 0, b"lock")
            self._locked.add(node)
            return MemoryLock(self._locked, node)

    def hold(self, path: Path) -> FolderLock:
        with self._disk.guard, refusing("open", path):
            node = self._disk.folder_of(path / "_")
            if node in self._locked:
                raise StoreError(held_elsewhere(path))
            self._locked.add(node)
            return MemoryLock(self._locked, node)


class MemoryLock:
    """A lock inside one MemoryFiles; an image has none."""

    def __init__(self, locked: set[int], node: int) -> None:
        self._locked = locked
        self._node = node

    def release(self) -> None:
        self._locked.discard(self._node)


class MemoryBigFile:
    """A BigFile of a MemoryFiles; using it after `close` is a bug of ours, and said so."""

    def __init__(self, disk: MemoryDisk, node: int, path: Path, *, is_mapped: bool) -> None:
        self._disk = disk
        self._node = node
        self._path = path
        self._is_open = True
        self.size = len(disk.contents[node])
        self._view: memoryview | None = None
        if is_mapped:
            self._view = memoryview(disk.changeable(node)).toreadonly()
            disk.mapped[node] = disk.mapped.get(node, 0) + 1

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        self._ensure_open()
        with refusing("write", self._path):
            self._disk.write(self._node, self._path, position, bytes(data))

    def read_at(self, position: int, size: int) -> bytes:
        self._ensure_open()
        try:
            return self._disk.read_node(self._node, self._path, position, size)
        except OSError as error:
            raise ReadFailed(f"cannot read {self._path}: {error.strerror}") from error

    def view(self) -> memoryview:
        if self._view is None:
            raise BrokenInvariant(f"{self._path} was opened without a map and has no view")
        return self._view

    def sync(self) -> None:
        self._ensure_open()
        self._disk.sync_node(self._node, self._path)

    def close(self) -> None:
        self._ensure_open()
        self._is_open = False
        if self._view is not None:
            self._view.release()
            self._disk.mapped[self._node] -= 1

    def _ensure_open(self) -> None:
        ensure(self._is_open, f"{self._path} is used after it was closed")
