"""Whether a record that passes every check was yet never written to its end.

In: a record behind the mark up to which everything surely was written. Out: torn or whole.

A record's CRC is that of its body. What a crash left unwritten of its properties is zeros, and of
properties nothing else tells. Rules:
1. After a kill a record is torn when its last byte is zero and only zeros follow it in its file: a
   write that was cut off left its beginning, and nothing was written after it. Any other byte
   behind the record proves that all of it came to the kernel.
2. After a power cut it is torn when a whole sector of the file, of which it takes a part, is zeros:
   a record is written at once, into zeros, so its sectors have its bytes or nothing at all. Whether
   it is the last does not matter: sectors reach the disk in any order, what follows proves nothing.
3. Other zeros are kept. Senders cannot send any, so that a sector of them is a lost one; a replica
   that is in doubt gets the record from its master again.
"""

from collections.abc import Callable

from orbitmq.core import Walked

SECTOR_SIZE = 512
"""The disk writes so many bytes, or none of them."""


def is_cut_off(walked: Walked, is_free: Callable[[int], bool]) -> bool:
    """Whether a killed process did not get to the end of a record (rule 1)."""
    return walked.properties[-1:] == b"\0" and is_free(walked.log_offset + walked.size)


def has_lost_sector(walked: Walked, file_start: int, read: Callable[[int, int], bytes]) -> bool:
    """Whether a power cut took a part of a record's properties (rule 2)."""
    if b"\0" not in walked.properties:
        return False
    end = walked.log_offset + walked.size
    position = end - len(walked.properties) - file_start
    first = file_start + position - position % SECTOR_SIZE
    size = -(-(end - first) // SECTOR_SIZE) * SECTOR_SIZE
    sectors = read(first, size)
    return any(not any(sectors[at : at + SECTOR_SIZE]) for at in range(0, size, SECTOR_SIZE))
