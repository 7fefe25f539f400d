"""The checkpoint: how far log, queues and index were brought to the disk.

In: the first 512 bytes of the file `checkpoint`. Out: a Checkpoint, and back.
Layout: 0 the original's three stamps | 24 what 5.x keeps there, never touched | 64 our own block up
to 512: name, CRC of the rest, boot id, copy of the stamps, `written` mark, `synced` mark, since its
second version the sizes of log and queue files, and in its third, which is written only if there
are several, the number of the log's folders, where the log begins, and how many of them hold files.

Rules:
1. All of it lies in one sector and is written with one write: after a crash it is old or new.
2. Our block counts only while its copy of the stamps equals the stamps: otherwise the original has
   run on the folder, and what our marks say is no longer true.
3. Whatever is wrong with the file, it is read as far as it is right: a checkpoint is no reason not
   to start.
"""

import struct
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from orbitmq.ensure import ensure
from orbitmq.world.files import Files

SECTOR_SIZE = 512
FILE_SIZE = 4_096

_STAMPS = struct.Struct(">qqq")
_BLOCK_AT = 64
_NAME = b"ORBITMQ2"
_FIRST_NAME = b"ORBITMQ1"
_SPREAD_NAME = b"ORBITMQ3"
_HEAD = struct.Struct(">8sI")  # name, CRC of what follows
_FACTS = struct.Struct(">16s24s")  # boot id, copy of the stamps
_MARK = struct.Struct(">bqqq32sqqqq")  # 1 if it is there, then its fields
_SIZES = struct.Struct(">qq")
_SPREAD_SIZES = struct.Struct(">qqqqq")
_FIRST_BLOCK_SIZE = _HEAD.size + _FACTS.size + 2 * _MARK.size
_BLOCK_SIZES = {
    _FIRST_NAME: _FIRST_BLOCK_SIZE,
    _NAME: _FIRST_BLOCK_SIZE + _SIZES.size,
    _SPREAD_NAME: _FIRST_BLOCK_SIZE + _SPREAD_SIZES.size,
}
_INDEX_NAME_BYTES_MAX = 32


class Stamps(NamedTuple):
    """The original's: store times up to which log, queues and index are on the disk."""

    physic_ms: int
    logics_ms: int
    index_ms: int


class Mark(NamedTuple):
    """What queues and index hold of the log below `log_offset`."""

    log_offset: int
    queue_count: int
    """Queues whose next offset is above 0."""
    entry_total: int
    """The sum of all queues' next offsets."""
    index_name: str
    index_count: int
    index_slots: int
    index_end_offset: int
    index_end_ms: int


class FileSizes(NamedTuple):
    """How long the files are that this folder was written with, and where those of the log are."""

    log_file_size: int
    queue_file_size: int
    log_folder_count: int = 1
    log_start: int = 0
    """The first log offset of the first file; kept if there are several folders."""
    holding_count: int = 0
    """How many folders have files; kept likewise."""


class Checkpoint(msgspec.Struct, frozen=True):
    """The stamps and, when our block counts, the marks."""

    stamps: Stamps
    written: Mark | None
    """The kernel had everything below it; true as long as the machine was not started anew."""
    synced: Mark | None
    """The disk has everything below it."""
    boot_id: bytes
    """The start of the machine during which the block was written."""
    sizes: FileSizes | None = None
    """None in a block of the first version."""


def read_checkpoint(files: Files, path: Path) -> Checkpoint | None:
    """Return what the file says, without marks when our block does not count; None without file."""
    data = files.read_at(path, 0, SECTOR_SIZE)
    if data is None or len(data) < _STAMPS.size:
        return None
    stamps = Stamps._make(_STAMPS.unpack_from(data))
    block = _whole_block(data)
    if block is None:
        return Checkpoint(stamps, None, None, b"")
    boot_id, stamps_copy = _FACTS.unpack_from(block, _HEAD.size)
    if stamps_copy != data[: _STAMPS.size]:
        return Checkpoint(stamps, None, None, b"")
    marks_at = _HEAD.size + _FACTS.size
    written, synced = (_read_mark(block, marks_at + at) for at in (0, _MARK.size))
    sizes = None
    if len(block) > _FIRST_BLOCK_SIZE:
        form = _SPREAD_SIZES if block.startswith(_SPREAD_NAME) else _SIZES
        sizes = FileSizes(*form.unpack_from(block, _FIRST_BLOCK_SIZE))
    is_known = sizes is not None and min(sizes[:3]) > 0
    return Checkpoint(stamps, written, synced, boot_id, sizes if is_known else None)


def _whole_block(sector: bytes) -> bytes | None:
    """Return our block when there is one and its CRC is right."""
    name = sector[_BLOCK_AT : _BLOCK_AT + len(_NAME)]
    size = _BLOCK_SIZES.get(name, 0)
    block = sector[_BLOCK_AT : _BLOCK_AT + size]
    if not size or len(block) < size:
        return None
    return block if _HEAD.unpack_from(block)[1] == crc32(block[_HEAD.size :]) else None


def encode_checkpoint(checkpoint: Checkpoint, old: bytes | None) -> bytes:
    """Return the file's first 512 bytes; of `old`, the bytes that 5.x keeps are kept."""
    stamps = _STAMPS.pack(*checkpoint.stamps)
    marks = _mark_bytes(checkpoint.written) + _mark_bytes(checkpoint.synced)
    rest = _FACTS.pack(checkpoint.boot_id, stamps) + marks
    sizes = checkpoint.sizes or FileSizes(0, 0)
    is_spread = sizes.log_folder_count > 1
    rest += _SPREAD_SIZES.pack(*sizes) if is_spread else _SIZES.pack(*sizes[:2])
    block = _HEAD.pack(_SPREAD_NAME if is_spread else _NAME, crc32(rest)) + rest
    kept = (old or b"")[len(stamps) : _BLOCK_AT].ljust(_BLOCK_AT - len(stamps), b"\0")
    return (stamps + kept + block).ljust(SECTOR_SIZE, b"\0")


def _read_mark(block: bytes, at: int) -> Mark | None:
    is_there, log_offset, queue_count, entry_total, name, *index = _MARK.unpack_from(block, at)
    if not is_there:
        return None
    text = name.rstrip(b"\0").decode("ascii", "replace")
    return Mark(log_offset, queue_count, entry_total, text, *index)


def _mark_bytes(mark: Mark | None) -> bytes:
    if mark is None:
        return bytes(_MARK.size)
    name = mark.index_name.encode("ascii")
    ensure(len(name) <= _INDEX_NAME_BYTES_MAX, "names of index files are short")
    return _MARK.pack(1, *mark[:3], name, *mark[4:])


def has_broken_block(sector: bytes) -> bool:
    """Whether the file's first 512 bytes hold a block of ours whose CRC is wrong."""
    is_ours = sector[_BLOCK_AT : _BLOCK_AT + len(_NAME)] in _BLOCK_SIZES
    return is_ours and _whole_block(sector) is None
