"""The part of the file system double that holds files: nodes, names, the log of what was done.

In: the single steps of `Steps`, as a kernel takes them. Out: what they ask, OSError where a kernel
refuses, and `ops`, every change in order, from which `crash_images` builds what a power cut leaves.

Rules:
1. A node is a number. Folders hold names and numbers, so a file stays itself when renamed.
2. Contents are bytes, shared with the image they came from, until the first change of them.
3. A change is logged after it was done; one that was made to fail changes nothing but what it says.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from orbitmq.ensure import BrokenInvariant
from orbitmq.errors import ReadFailed
from orbitmq.world.file_steps import unsynced

ROOT = 0

Edit = tuple[int, str, int | None]
"""In this folder this name means that node from now on, or nothing."""
Content = bytes | bytearray


class Op(NamedTuple):
    """One change. `kind` is create, write, resize, sync, sync_failed, rename, link, remove,
    make_folder, remove_folder, sync_folder or sync_folder_failed; failures see `read` too."""

    kind: str
    path: Path
    node: int = 0
    position: int = 0
    data: bytes = b""
    edits: tuple[Edit, ...] = ()


class Tree(NamedTuple):
    """All folders and all contents at one moment; never changed."""

    folders: dict[int, dict[str, int]]
    contents: dict[int, bytes]


EMPTY = Tree({ROOT: {}}, {})

Trouble = int | Literal["short"] | Callable[[], None]
"""An errno, or for a write: half of it and then a full disk, or something to call instead."""


class Failure:
    """Which operations of a kind fail, and how."""

    def __init__(
        self, kind: str, when: int | Callable[[Op], bool], trouble: Trouble, times: int | None
    ) -> None:
        self._kind = kind
        self._when = when
        self._left = times
        self._seen = 0
        self.trouble = trouble

    def strikes(self, op: Op) -> bool:
        if self._left == 0 or not op.kind.startswith(self._kind):
            return False
        self._seen += 1
        hit = self._when(op) if callable(self._when) else self._seen >= self._when
        if hit and self._left is not None:
            self._left -= 1
        return hit


def refuse(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))


class MemoryDisk:
    """Files in memory with the steps of a kernel."""

    def __init__(self, tree: Tree = EMPTY) -> None:
        self.tree = tree
        self.ops: list[Op] = []
        self.failures: list[Failure] = []
        self.folders = {node: dict(names) for node, names in tree.folders.items()}
        self.contents: dict[int, Content] = dict(tree.contents)
        self.modified_ms: dict[int, int] = {}
        self.now_ms = 0
        self.has_nameless = True
        self.mapped: dict[int, int] = {}
        self.guard = threading.RLock()
        self._next_node = 1 + max((*tree.folders, *tree.contents))

    # ---- looking -------------------------------------------------------------------------------

    def node(self, path: Path) -> int:
        """Return the node of a path, or raise as a kernel does."""
        found = ROOT
        for name in path.parts[1:] if path.is_absolute() else path.parts:
            names = self.folders.get(found)
            if names is None:
                raise refuse(errno.ENOTDIR, path)
            if name not in names:
                raise refuse(errno.ENOENT, path)
            found = names[name]
        return found

    def known(self, path: Path) -> int | None:
        """Return the node of a path, or None when there is none."""
        try:
            return self.node(path)
        except OSError:
            return None

    def file(self, path: Path) -> int:
        """Return the node of a file; a folder is refused."""
        node = self.node(path)
        if node in self.folders:
            raise refuse(errno.EISDIR, path)
        return node

    def folder_of(self, path: Path) -> int:
        """Return the node of the folder in which a path lies."""
        node = self.node(path.parent)
        if node not in self.folders:
            raise refuse(errno.ENOTDIR, path)
        return node

    def is_there(self, path: Path) -> bool:
        with self.guard:
            return self.known(path) is not None

    def size(self, path: Path) -> int | None:
        with self.guard:
            node = self.known(path)
            return None if node is None or node in self.folders else len(self.contents[node])

    def read_at(self, path: Path, position: int, size: int) -> bytes | None:
        with self.guard:
            if self.known(path) is None:
                return None
            try:
                return self.read_node(self.file(path), path, position, size)
            except OSError as error:
                raise ReadFailed(f"cannot read {path}: {error.strerror}") from error

    def read_node(self, node: int, path: Path, position: int, size: int) -> bytes:
        with self.guard:
            self.try_it(Op("read", path, node, position))
            return bytes(self.contents[node][position : position + size])

    def walk(self, node: int = ROOT, path: Path = Path("/")) -> Iterator[tuple[Path, bytes]]:
        """Return every file with its contents."""
        for name, child in sorted(self.folders[node].items()):
            if child in self.folders:
                yield from self.walk(child, path / name)
            else:
                yield path / name, bytes(self.contents[child])

    def settle(self) -> None:
        """Take everything as it is now for the start, and forget what was done."""
        with self.guard:
            contents = {node: bytes(content) for node, content in self.contents.items()}
            self.tree = Tree({node: dict(names) for node, names in self.folders.items()}, contents)
            self.ops.clear()

    # ---- changing contents ---------------------------------------------------------------------

    def try_it(self, op: Op) -> bool:
        """Let failures strike; true when this write is to be a short one."""
        is_short = False
        for failure in self.failures:
            if not failure.strikes(op):
                continue
            if isinstance(failure.trouble, int):
                raise refuse(failure.trouble, op.path)
            if callable(failure.trouble):
                failure.trouble()
            else:
                is_short = True
        return is_short

    def create(self, path: Path) -> int:
        """Return the node of a file that is made when it is not there."""
        folder = self.folder_of(path)
        node = self.folders[folder].get(path.name)
        if node is not None:
            return self.file(path)
        node = self._next_node
        self.name(Op("create", path, node, edits=((folder, path.name, node),)))
        self._next_node += 1
        self.contents[node] = b""
        return node

    def write(self, node: int, path: Path, position: int, data: bytes) -> None:
        with self.guard:
            op = Op("write", path, node, position, data)
            if self.try_it(op):
                self._write(op._replace(data=data[: len(data) // 2]))
                raise refuse(errno.ENOSPC, path)
            self._write(op)

    def _write(self, op: Op) -> None:
        end = op.position + len(op.data)
        if not op.data:
            return
        if end > len(self.contents[op.node]):
            self._resized(op.node, end)
        self.changeable(op.node)[op.position : end] = op.data
        self.done(op)

    def resize(self, node: int, path: Path, size: int) -> None:
        with self.guard:
            op = Op("resize", path, node, size)
            self.try_it(op)
            if size != len(self.contents[node]):
                self._resized(node, size)
                self.done(op)

    def _resized(self, node: int, size: int) -> None:
        if self.mapped.get(node):
            raise BrokenInvariant(f"the size of node {node} changes while it is mapped")
        old = self.contents[node]
        self.contents[node] = bytearray(old[:size].ljust(size, b"\0"))

    def changeable(self, node: int) -> bytearray:
        """Return contents that are no longer shared with an image."""
        content = self.contents[node]
        if isinstance(content, bytes):
            content = self.contents[node] = bytearray(content)
        return content

    def sync_node(self, node: int, path: Path) -> None:
        """Sync a file or folder, or fail and remember that."""
        kind = "sync_folder" if node in self.folders else "sync"
        with self.guard:
            try:
                self.try_it(Op(kind, path, node))
            except OSError as error:
                self.done(Op(kind + "_failed", path, node))
                raise unsynced(error, path) from error
            self.done(Op(kind, path, node))

    def done(self, op: Op) -> None:
        self.ops.append(op)
        self.modified_ms[op.node] = self.now_ms

    # ---- changing names ------------------------------------------------------------------------

    def name(self, op: Op) -> None:
        """Do the edits of names that an operation is."""
        self.try_it(op)
        for folder, name, node in op.edits:
            if node is None:
                del self.folders[folder][name]
            else:
                self.folders[folder][name] = node
        self.done(op)

    def link(self, path: Path, target: Path) -> None:
        with self.guard:
            node, folder = self.file(path), self.folder_of(target)
            if target.name in self.folders[folder]:
                raise refuse(errno.EEXIST, target)
            self.name(Op("link", path, node, edits=((folder, target.name, node),)))

    def rename(self, path: Path, target: Path) -> None:
        with self.guard:
            node, folder = self.node(path), self.folder_of(target)
            if node in self.folders and path in target.parents:
                raise refuse(errno.EINVAL, target)
            there = self.folders[folder].get(target.name)
            if there == node:
                return  # POSIX: two names of one file both stay
            if there in self.folders and (node not in self.folders or self.folders[there]):
                raise refuse(errno.EISDIR if node not in self.folders else errno.ENOTEMPTY, target)
            if there is not None and there not in self.folders and node in self.folders:
                raise refuse(errno.ENOTDIR, target)
            edits = ((self.folder_of(path), path.name, None), (folder, target.name, node))
            self.name(Op("rename", path, node, edits=edits))

    def unlink(self, path: Path) -> None:
        with self.guard:
            try:
                node = self.file(path)
            except FileNotFoundError:
                return
            self.name(Op("remove", path, node, edits=((self.folder_of(path), path.name, None),)))

    def make_folders(self, path: Path) -> list[Path]:
        changed: list[Path] = []
        with self.guard:
            for folder in reversed((path, *path.parents)):
                if self.known(folder) is None:
                    self._make_folder(folder)
                    changed.append(folder.parent)
                elif self.node(folder) not in self.folders:
                    raise refuse(errno.EEXIST, folder)
        return changed

    def _make_folder(self, path: Path) -> None:
        node = self._next_node
        edits = ((self.folder_of(path), path.name, node),)
        self.name(Op("make_folder", path, node, edits=edits))
        self._next_node += 1
        self.folders[node] = {}

    def remove_folder(self, path: Path) -> None:
        with self.guard:
            node = self.node(path)
            if node not in self.folders:
                raise refuse(errno.ENOTDIR, path)
            if self.folders[node]:
                raise refuse(errno.ENOTEMPTY, path)
            edits = ((self.folder_of(path), path.name, None),)
            self.name(Op("remove_folder", path, node, edits=edits))

    # ---- the rest of Steps ---------------------------------------------------------------------

    def sync_folder(self, path: Path) -> None:
        with self.guard:
            node = self.known(path)
            if node is not None:
                self.sync_node(node, path)

    def write_whole(self, path: Path, parts: Iterable[tuple[int, bytes]], size: int) -> None:
        with self.guard:
            node = self.create(path)
            self.resize(node, path, 0)
            for position, data in parts:
                self.write(node, path, position, data)
            self.resize(node, path, size)
            self.sync_node(node, path)

    def allocate(self, path: Path, size: int) -> None:
        self.write_whole(path, [], size)

    def allocate_nameless(self, path: Path, size: int) -> bool:
        if self.has_nameless:
            self.make_nameless(path, size, is_synced=True)
        return self.has_nameless

    def make_nameless(self, path: Path, size: int, *, is_synced: bool) -> None:
        """Make a file that has its size before it has its name; when that fails, there is none."""
        with self.guard:
            folder, node = self.folder_of(path), self._next_node
            self.name(Op("create", path, node))
            self._next_node += 1
            self.contents[node] = b""
            self.resize(node, path, size)
            if is_synced:
                self.sync_node(node, path)
            if path.name in self.folders[folder]:
                raise refuse(errno.EEXIST, path)
            self.name(Op("link", path, node, edits=((folder, path.name, node),)))

    def is_folder(self, path: Path) -> bool:
        with self.guard:
            return self.known(path) in self.folders

    def names(self, path: Path) -> list[str]:
        with self.guard:
            return sorted(self.folders[self.node(path)])
