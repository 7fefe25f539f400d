"""Log folders for the tests of `rocketmq_log`, and reading them without Spark.

In: records, or the name of a recorded store. Out: folders, rows, and what the store's own reader of
logs (`LogWalk`, one record at a time) finds in the same folder.
"""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from orbitmq.arrow.columns import COLUMN_OF, arrow_schema
from orbitmq.core import Walked
from orbitmq.spark.log_options import log_options
from orbitmq.spark.log_rows import DAMAGE
from orbitmq.spark.log_source import LogReader
from orbitmq.store.checkpoint import Checkpoint, Mark, Stamps, encode_checkpoint
from orbitmq.store.layout import file_name
from orbitmq.store.log_folders import LogFolders
from orbitmq.store.log_walk import Damage, LogWalk
from orbitmq.wire.expression import tag_code
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import BLANK_SIZE, Record, encode_blank, encode_record
from orbitmq.world.files import SystemFiles

FILE_SIZE = 4_096
QUEUE_FILE_SIZE = 800
_ENTRY = struct.Struct(">qiq")


class MadeLog:
    """A store folder with a log of small files, written here byte by byte."""

    def __init__(self, root: Path, file_size: int = FILE_SIZE, first: int = 0) -> None:
        self.root = root
        self.file_size = file_size
        self.end = first
        self.folder.mkdir(parents=True, exist_ok=True)
        self.starts: list[int] = []

    @property
    def folder(self) -> Path:
        return self.root / "commitlog"

    def file(self, log_offset: int) -> Path:
        return self.folder / file_name(log_offset - log_offset % self.file_size)

    def append(self, *records: Record) -> None:
        """Write records as a broker does: one that does not fit closes its file."""
        for record in records:
            size = len(encode_record(record))
            left = self.file_size - self.end % self.file_size
            if size + BLANK_SIZE > left:
                self.write(self.end, encode_blank(left))
                self.end += left
            fields = {name: getattr(record, name) for name in Record.__struct_fields__}
            self.write(self.end, encode_record(Record(**{**fields, "log_offset": self.end})))
            self.starts.append(self.end)
            self.end += size

    def write(self, log_offset: int, data: bytes) -> None:
        """Write bytes at a log offset; files have their whole size from the beginning, and keep it:
        what would reach behind the file's end is left out."""
        path = self.file(log_offset)
        if not path.exists():
            path.write_bytes(bytes(self.file_size))
        with path.open("r+b") as file:
            at = log_offset % self.file_size
            file.seek(at)
            file.write(data[: self.file_size - at])


class MadeStore(MadeLog):
    """A store folder with a log and the queue files that a broker makes for it."""

    def __init__(self, root: Path, file_size: int = FILE_SIZE) -> None:
        super().__init__(root, file_size)
        self.records: list[Record] = []

    def append(self, *records: Record) -> None:
        super().append(*records)
        self.records += records

    @property
    def times(self) -> list[int]:
        """When records were stored, in the order of `starts`."""
        return [record.store_ms for record in self.records]

    def write_queues(self, *, without: Sequence[str] = (), synced: int | None = None) -> None:
        """Write the queue files of all topics but some, and up to where they are said to be."""
        queues: dict[Path, bytearray] = {}
        for start, record in zip(self.starts, self.records, strict=True):
            queue = self.root / "consumequeue" / record.topic / str(record.queue_id)
            tag = parse_properties(record.properties).get("TAGS")
            entry = (start, len(encode_record(record)), tag_code(tag) if tag else 0)
            queues.setdefault(queue, bytearray()).extend(_ENTRY.pack(*entry))
        for queue, entries in queues.items():
            if queue.parent.name not in without:
                queue.mkdir(parents=True, exist_ok=True)
                for at in range(0, len(entries), QUEUE_FILE_SIZE):
                    part = bytes(entries[at : at + QUEUE_FILE_SIZE])
                    (queue / file_name(at)).write_bytes(part.ljust(QUEUE_FILE_SIZE, b"\0"))
        mark = Mark(self.end if synced is None else synced, 0, 0, "", 0, 0, 0, 0)
        checkpoint = Checkpoint(Stamps(0, 0, 0), mark, mark, bytes(16))
        (self.root / "checkpoint").write_bytes(encode_checkpoint(checkpoint, None))


def quarantine_schema() -> Any:
    """All columns, and the one of damage; every one may be null."""
    fields = [*arrow_schema([*COLUMN_OF, "raw"]), pa.field(DAMAGE.name, pa.string())]
    return pa.schema([field.with_nullable(True) for field in fields])


def read_rows(path: Path | str, schema: Any = None, **options: str) -> list[dict[str, Any]]:
    """Return the rows of a log as a batch query reads them, task by task."""
    if schema is None:
        is_quarantine = options.get("onCorruptRecord") == "quarantine"
        schema = quarantine_schema() if is_quarantine else arrow_schema()
    reader = LogReader(log_options({"path": str(path), **options}), schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(schema)
    return [row for batch in batches for row in batch.to_pylist()]


def offsets(rows: Sequence[dict[str, Any]]) -> list[int]:
    """Return where records begin."""
    return [row["physicalOffset"] for row in rows if row.get("damage") is None]


def bad_ranges(rows: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return the damaged ranges of a query with onCorruptRecord=quarantine."""
    bad = [row for row in rows if row["damage"] is not None]
    return [(row["physicalOffset"], row["physicalOffset"] + row["size"]) for row in bad]


def walked(root: Path) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the records and the damage that the store's own reader finds."""
    found = list(LogWalk(SystemFiles(), LogFolders(SystemFiles(), (root / "commitlog",))).walk())
    records = [each.log_offset for each in found if isinstance(each, Walked)]
    return records, [(each.start, each.end) for each in found if isinstance(each, Damage)]
