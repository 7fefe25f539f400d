"""The check of a store folder's small files: tables, checkpoint, and what belongs to nobody.

In: a folder. Out: faults; for the other checks, which topics there are and how far the checkpoint
says that queues and index go.

Rules:
1. A table that does not parse is damage; its backup only a warning. What the values mean is the
   broker's business, apart from offsets beyond a queue's end, which are a warning.
2. Names that nobody knows are listed, as something that does not belong there or comes from a newer
   version; nothing is said of folders that brokers of 5.x keep beside.
"""

from pathlib import Path
from typing import Any

from orbitmq.errors import ProtocolError, ReadFailed
from orbitmq.store.checkpoint import (
    FILE_SIZE,
    SECTOR_SIZE,
    Checkpoint,
    has_broken_block,
    read_checkpoint,
)
from orbitmq.store.layout import Folder
from orbitmq.store.verdict import READ_TRIES, RECOVERS, Verdict
from orbitmq.wire.fastjson import read_json
from orbitmq.world.files import Files

TABLES = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
    "delayOffset.json": "offsetTable",
    "consumerFilter.json": "filterDataByTopic",
}
"""Each table of ours and the member that holds it."""

OTHER_TABLES = (
    "lmqConsumerOffset.json",
    "consumerOrderInfo.json",
    "messageRequestMode.json",
    "topicQueueMapping.json",
)
_CONFIG_NAMES = {
    *TABLES,
    *OTHER_TABLES,
    "timercheck",
    "timermetrics",
    "transactionMetrics",
    "removedTopics.json",
    "broker.properties",  # settings that were changed over the network
}
_ROOT_NAMES = {
    *("commitlog", "consumequeue", "consumequeue_ext", "index", "config", "aside"),
    *(
        "checkpoint",
        "abort",
        "abort.bak",
        "lock",
        "timerwheel",
        "timerlog",
        "compaction",
        "rocksdbstore",
    ),
}
_BACKUP = ".bak"
_OFFSETS = "consumerOffset.json"


def check_names(files: Files, folder: Folder, verdict: Verdict) -> None:
    """List what lies in the folder and belongs to nobody."""
    for name in files.names(folder.root):
        has_log = any(log.is_relative_to(folder.root / name) for log in folder.logs)
        if name not in _ROOT_NAMES and not has_log:
            verdict.warning(folder.root / name, -1, "unknown; not part of a store")
    for name in files.names(folder.config):
        known = name.removesuffix(".tmp").removesuffix(_BACKUP)
        if known not in _CONFIG_NAMES:
            verdict.warning(folder.config / name, -1, "unknown; not part of a store")
        elif name.endswith(".tmp"):
            text = "left over from a table that was being saved"
            verdict.info(folder.config / name, -1, text, RECOVERS)
    if files.names(folder.aside):
        text = "holds what recovery or repair set aside: look at it, then remove it"
        verdict.info(folder.aside, -1, text)


def read_topics(files: Files, folder: Folder) -> set[str]:
    """Return the topics of the topic table, as far as it can be read."""
    table = _table(files, folder.config / "topics.json", TABLES["topics.json"])
    return set(table) if isinstance(table, dict) else set()


def read_offsets(files: Files, folder: Folder) -> dict[str, Any]:
    """Return the consumer offsets, as far as they can be read."""
    table = _table(files, folder.config / _OFFSETS, TABLES[_OFFSETS])
    return table if isinstance(table, dict) else {}


def check_tables(files: Files, folder: Folder, verdict: Verdict) -> None:
    """Check that tables parse."""
    for name in (*TABLES, *OTHER_TABLES):
        for path in (folder.config / name, folder.config / (name + _BACKUP)):
            table = _table(files, path, TABLES.get(name, ""))
            if table is None:
                continue
            verdict.counts["tables"] += 1
            if isinstance(table, dict):
                continue
            if path.name == name:
                advice = f"the broker reads {name}.bak instead; bring the table back from a copy"
                verdict.damage(path, -1, table, advice)
            else:
                verdict.warning(path, -1, table, "it is replaced when the table is saved again")


def _table(files: Files, path: Path, member: str) -> dict[str, Any] | str | None:
    """Return a table, why it is none, or None when there is no such file."""
    try:
        data = files.read(path)  # in one go: a live broker replaces it
    except OSError as error:
        raise ReadFailed(f"cannot read {path}: {error.strerror}", path) from error
    if data is None:
        return None
    if not data.strip(b"\0 \t\r\n"):
        return "is empty"
    try:
        value: dict[str, Any] = read_json(data, dict[str, Any])
    except ProtocolError as error:
        return f"does not parse: {error}"
    if not member:
        return value
    table = value.get(member)
    return table if isinstance(table, dict) else f"has no member {member} with a table"


def check_offsets(
    folder: Folder, verdict: Verdict, table: dict[str, Any], ends: dict[tuple[str, int], int]
) -> None:
    """Check offsets that were read before the log was; `ends` says where each queue ends."""
    path = folder.config / _OFFSETS
    for key, offsets in table.items():
        topic, _, group = key.partition("@")
        for queue_id, offset in offsets.items() if isinstance(offsets, dict) else ():
            end = ends.get((topic, int(queue_id)), 0) if str(queue_id).isdecimal() else 0
            if isinstance(offset, int) and offset > end:
                text = f"group {group} is at {offset} of topic {topic}, queue {queue_id}, which "
                verdict.warning(path, -1, f"{text}ends at {end}")


def check_checkpoint(
    files: Files, folder: Folder, verdict: Verdict, *, is_clean: bool
) -> Checkpoint | None:
    """Check the checkpoint's form; return what it says."""
    path = folder.checkpoint
    size = files.size(path)
    if size is None or (size == 0 and not is_clean):  # the latter: killed while it was made
        return None
    if size != FILE_SIZE:
        verdict.damage(path, -1, f"has {size} bytes instead of {FILE_SIZE}")
    sectors = (files.read_at(path, 0, SECTOR_SIZE) or b"" for _ in range(READ_TRIES))
    if all(has_broken_block(sector) for sector in sectors):  # not just being written
        verdict.damage(path, 64, "the CRC of our own block is wrong")
    checkpoint = read_checkpoint(files, path)
    if checkpoint is not None and min(checkpoint.stamps) < 0:
        verdict.damage(path, 0, f"has a time before 1970: {tuple(checkpoint.stamps)}")
    return checkpoint
