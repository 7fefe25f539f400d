"""What a power cut leaves of a file system, for every place in the log of its operations.

In: the tree of files at the start and the operations since. Out: the pieces that are not yet safe
(`units`) and, for a choice among them, the tree that is found after the power is back.

Rules:
1. Of a file, each 512-byte sector that was written since the file's last sync is found as it was
   then, as it was left, or as any write in between left it; sectors choose apart from each other.
2. A file's size is the one at its last sync or the newest. What it gained unwritten is zeros.
3. A change of names is whole or not at all, and found only with all earlier ones of its folders.
   It is safe when one of its folders was synced.
4. After a sync that failed, what it should have brought to the disk may be there or not, and a
   later sync does not change that; only writing it again and syncing does.
"""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import NamedTuple

from tests.world.memory_disk import Edit, Op, Tree

SECTOR = 512


class Unit(NamedTuple):
    """A piece that a power cut keeps or loses: one of `versions`, or 0 for what was safe before."""

    kind: str
    """`sector` or `size` of a file, or `names`: a change of names."""
    node: int
    sector: int
    versions: int


Chooser = Callable[[Sequence[Unit]], Sequence[int]]
"""Gives for every unit which version is found, 0 to unit.versions."""


def nothing() -> Chooser:
    """Lose everything that was not synced."""
    return lambda units: [0] * len(units)


def everything() -> Chooser:
    """Lose nothing."""
    return lambda units: [unit.versions for unit in units]


def all_but_one(number: int) -> Chooser:
    """Lose one unit; counted around."""
    return lambda units: [
        0 if at == number % len(units) else unit.versions for at, unit in enumerate(units)
    ]


def only_one(number: int) -> Chooser:
    """Keep one unit; counted around."""
    return lambda units: [
        unit.versions if at == number % len(units) else 0 for at, unit in enumerate(units)
    ]


def some(seed: int) -> Chooser:
    """Keep a random part, few or many, in random versions; the same for the same seed."""

    def choose(units: Sequence[Unit]) -> list[int]:
        chance = Random(seed)
        share = chance.random()
        draw, below = chance.random, chance.randrange
        return [
            (1 if unit.versions == 1 else 1 + below(unit.versions)) if draw() < share else 0
            for unit in units
        ]

    return choose


class _File:
    """One file: what is safe, what the kernel has, and how each unsafe sector got there."""

    def __init__(self, content: bytes) -> None:
        self.safe = content
        self.now = bytearray(content)
        self.sectors: dict[int, list[bytes]] = {}
        self._lost: set[int] = set()
        self._snapshot: bytes | None = content

    def write(self, position: int, data: bytes) -> None:
        end = position + len(data)
        if position > len(self.now):
            self.resize(position)
        self.now[position:end] = data
        self._touch(position, end)

    def resize(self, size: int) -> None:
        before = len(self.now)
        if size < before:
            del self.now[size:]
            self._drop_behind(size)
        else:
            self.now.extend(bytes(size - before))
            self._touch(before, max(before, min(size, len(self.safe))))
        self._snapshot = None

    def _drop_behind(self, size: int) -> None:
        for sector in [sector for sector in self.sectors if sector * SECTOR >= size]:
            del self.sectors[sector]
            self._lost.discard(sector)
        if size % SECTOR:
            self._touch(size - 1, size)

    def _touch(self, start: int, end: int) -> None:
        """Remember what the sectors of a range hold now."""
        self._snapshot = None
        if start == end:
            return
        for sector in range(start // SECTOR, -(-end // SECTOR)):
            at = sector * SECTOR
            version = bytes(self.now[at : at + SECTOR]).ljust(SECTOR, b"\0")
            self.sectors.setdefault(sector, []).append(version)
            self._lost.discard(sector)

    def sync(self) -> None:
        lost = {sector: self.sectors[sector] for sector in self._lost}
        choice = {s: versions[-1] for s, versions in self.sectors.items() if s not in lost}
        self.safe = self.found(choice, len(self.now))
        self.sectors = lost

    def fail_sync(self) -> None:
        self._lost = set(self.sectors)

    def found(self, choice: dict[int, bytes], size: int) -> bytes:
        """Return the contents with these sectors instead of the safe ones, at a size."""
        if not choice:
            return self.safe if size == len(self.safe) else self.safe[:size].ljust(size, b"\0")
        content = bytearray(self.safe[:size].ljust(size, b"\0"))
        for sector, data in choice.items():
            at = sector * SECTOR
            content[at : at + SECTOR] = data[: max(0, size - at)]
        return bytes(content)

    def snapshot(self) -> bytes:
        if self._snapshot is None:
            self._snapshot = bytes(self.now)
        return self._snapshot


class CrashDisk:
    """The file system after the first `upto` operations, with what is safe of it."""

    def __init__(self, tree: Tree) -> None:
        self.upto = 0
        self._files = {node: _File(content) for node, content in tree.contents.items()}
        self._safe = dict(tree.contents)
        self._safe_names = {node: dict(names) for node, names in tree.folders.items()}
        self._now_names = {node: dict(names) for node, names in tree.folders.items()}
        self._pending: list[tuple[Edit, ...]] = []
        self._unsafe: dict[int, _File] = {}
        self._units: list[Unit] | None = None

    def play(self, ops: Sequence[Op], upto: int) -> None:
        """Go on to the state after `upto` operations."""
        if upto > self.upto:
            self._units = None
        for op in ops[self.upto : upto]:
            self._play_one(op)
        self.upto = upto

    def _play_one(self, op: Op) -> None:
        if op.kind in ("write", "resize", "sync", "sync_failed"):
            self._play_content(op)
        elif op.kind == "sync_folder":
            self._settle(op.node)
        elif op.edits or op.kind == "create":
            self._play_names(op)

    def _play_content(self, op: Op) -> None:
        file = self._files[op.node]
        if op.kind == "write":
            file.write(op.position, op.data)
        elif op.kind == "resize":
            file.resize(op.position)
        elif op.kind == "sync":
            file.sync()
            self._safe[op.node] = file.safe
        else:
            file.fail_sync()
        if file.sectors or len(file.now) != len(file.safe):
            self._unsafe[op.node] = file
        else:
            self._unsafe.pop(op.node, None)

    def _play_names(self, op: Op) -> None:
        if op.kind == "create":
            self._files[op.node] = _File(b"")
            self._safe[op.node] = b""
        elif op.kind == "make_folder":
            self._safe_names[op.node] = {}
            self._now_names[op.node] = {}
        if op.edits:  # none: a file that has no name yet
            _edit(self._now_names, op.edits)
            self._pending.append(op.edits)

    def _settle(self, folder: int) -> None:
        """Make the changes of a folder's names safe, with those that came before them."""
        wanted, taken, left = {folder}, [], []
        for edits in reversed(self._pending):
            if wanted.isdisjoint(edit[0] for edit in edits):
                left.append(edits)
            else:
                wanted.update(edit[0] for edit in edits)
                taken.append(edits)
        for edits in reversed(taken):
            _edit(self._safe_names, edits)
        self._pending = left[::-1]

    def units(self) -> Sequence[Unit]:
        """Return what may be kept or lost now: contents by file, then changes of names in order."""
        if self._units is None:
            self._units = [*self._content_units(), *self._name_units()]
        return self._units

    def _content_units(self) -> Iterable[Unit]:
        for node, file in self._unsafe.items():
            if len(file.now) != len(file.safe):
                yield Unit("size", node, 0, 1)
            for sector, versions in file.sectors.items():
                yield Unit("sector", node, sector, len(versions))

    def _name_units(self) -> Iterable[Unit]:
        for edits in self._pending:
            yield Unit("names", edits[-1][0], 0, 1)

    def image(self, chosen: Sequence[int]) -> Tree:
        """Return the tree in which unit by unit the chosen version is found."""
        contents = dict(self._safe)
        at = 0
        for node, file in self._unsafe.items():
            size = len(file.safe)
            if len(file.now) != size:
                size = len(file.now) if chosen[at] else size
                at += 1
            picks = zip(file.sectors.items(), chosen[at : at + len(file.sectors)], strict=True)
            choice = {sector: versions[pick - 1] for (sector, versions), pick in picks if pick}
            at += len(file.sectors)
            contents[node] = file.found(choice, size)
        return Tree(self._found_names(chosen[at:]), contents)

    def _found_names(self, chosen: Sequence[int]) -> dict[int, dict[str, int]]:
        folders = dict(self._safe_names)
        cut: set[int] = set()
        copied: set[int] = set()
        for edits, pick in zip(self._pending, chosen, strict=True):
            touched = {edit[0] for edit in edits}
            if not pick or not cut.isdisjoint(touched):
                cut |= touched
                continue
            for folder in touched - copied:
                folders[folder] = dict(folders[folder])
            copied |= touched
            _edit(folders, edits)
        return folders

    def current(self) -> Tree:
        """Return the tree as the kernel has it."""
        contents = {node: file.snapshot() for node, file in self._files.items()}
        return Tree({node: dict(names) for node, names in self._now_names.items()}, contents)


def _edit(folders: dict[int, dict[str, int]], edits: Iterable[Edit]) -> None:
    for folder, name, node in edits:
        if node is None:
            folders[folder].pop(name, None)
        else:
            folders[folder][name] = node
