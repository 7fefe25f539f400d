"""How long work may take that comes in slices, one in each turn of the loop.

In: how long the loop was away with all else before this slice. Out: how long the slice may take.

Rule: a slice takes SLICE_S. When turns are long because others have much to do, it takes a quarter
of them, at most SHARE_MAX_S: work that had its two milliseconds in each would come to nothing.
"""

SLICE_S = 0.002
SHARE_MAX_S = 0.05
_OTHERS_PER_SHARE = 3
"""A quarter for this work, three for all else."""


def share_s(others_s: float) -> float:
    """Return how long a slice may take that had to wait so long for others."""
    return min(max(SLICE_S, others_s / _OTHERS_PER_SHARE), SHARE_MAX_S)
