"""Finding messages by their key: in the index's files, and in what waits to be filed.

In: a key and the store times between which to look. Out: a function for a thread.
Rule: what waits is frozen on the loop; filed meanwhile it is found twice, and given once.
"""

from collections.abc import Callable

from orbitmq.store.key_index import KeyIndex, KeyQuery, find_waiting


def prepare_lookup(
    index: KeyIndex, query: KeyQuery, visible_offset: int
) -> Callable[[], list[int]]:
    """Return the function that finds log offsets below `visible_offset`, newest first."""
    index.drain_some()
    waiting = index.waiting()

    def find() -> list[int]:
        found = [*find_waiting(waiting, query), *index.lookup(query)]
        unique = dict.fromkeys(found)
        return [at for at in unique if at < visible_offset][: query.count_max]

    return find
