"""Where a stream begins, and where that is kept until its first batch is planned.

In: options. Out: the offsets of its start, the same again after a restart.

Rules:
1. Spark asks for the start until the first batch is done, also after a restart. From the moment a
   first batch is planned its plan has the start in it (`offsets.STARTS`): nothing else is needed.
2. Before that, "latest" means the moment of asking, unless `initialOffsetStore` keeps it: as the
   group's offsets at the brokers, or in a file that ends with the first batch.
"""

from pathlib import Path

import msgspec

from orbitmq.spark.cluster import Cluster
from orbitmq.spark.offsets import Offsets, nested, read_offsets
from orbitmq.spark.topic_bounds import Bounds
from orbitmq.spark.topic_choice import queues_to_read
from orbitmq.spark.topic_options import CHECKPOINT, GROUP, LATEST, TopicOptions
from orbitmq.world.files import Files, SystemFiles


def start_of(cluster: Cluster, options: TopicOptions, files: Files | None = None) -> Offsets:
    """Return where a stream begins; raises MQError that names option, topic, broker and queue."""
    store = options.initial_offset_store
    if store == CHECKPOINT:
        return _resolved(cluster, options)
    if store == GROUP:
        return _of_group(cluster, options)
    return _of_file(cluster, options, Path(store), files if files is not None else SystemFiles())


def forget_start(options: TopicOptions, files: Files | None = None) -> None:
    """Remove the file of the start: the first batch is done."""
    if options.initial_offset_store not in (CHECKPOINT, GROUP):
        files = files if files is not None else SystemFiles()
        path = Path(options.initial_offset_store)
        if files.size(path) is not None:
            files.remove(path)


def _resolved(cluster: Cluster, options: TopicOptions) -> Offsets:
    queues = queues_to_read(cluster, options)
    return Bounds(cluster, options, queues).starts(LATEST)


def _of_group(cluster: Cluster, options: TopicOptions) -> Offsets:
    queues = queues_to_read(cluster, options)
    stored = cluster.group_offsets(options.group, queues, options.retries)
    known = {queue: offset for queue, offset in stored.items() if offset is not None}
    if len(known) == len(queues):
        return known
    start = Bounds(cluster, options, queues).starts(LATEST) | known
    cluster.store_group_offsets(options.group, start, options.retries)
    return start


def _of_file(cluster: Cluster, options: TopicOptions, path: Path, files: Files) -> Offsets:
    if (kept := files.read(path)) is not None:
        return read_offsets("initialOffsetStore", kept.decode())
    start = _resolved(cluster, options)
    files.make_folder(path.parent)
    files.replace(path, msgspec.json.encode(nested(start)))
    return start
