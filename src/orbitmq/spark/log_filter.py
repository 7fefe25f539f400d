"""Which records of a log are wanted: by topic, queue, tag and store time.

In: options, and records by their positions. Out: the positions that are wanted.

Rules:
1. Only the columns that decide are read for it: bodies of others are never touched.
2. What is damaged is nobody's: it is reported before anything is left out.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.arrow.columns import arrow_schema
from orbitmq.arrow.decode import BatchDecoder, Damage
from orbitmq.arrow.segments import mask_of, numbers_of, plain_array, text_array
from orbitmq.arrow.starts import Bytes, Positions
from orbitmq.spark.log_options import LogOptions


class LogFilter:
    """Chooses records."""

    def __init__(self, options: LogOptions) -> None:
        queues = np.array(sorted(options.chosen_queues), dtype=np.int32)
        chosen = {
            "topic": text_array(sorted(options.chosen_topics)),
            "queueId": plain_array(queues, pa.int32()),
            "tags": text_array(sorted(options.tag_filter.tags)),
        }
        self._chosen = {name: values for name, values in chosen.items() if len(values)}
        self._starting_ms, self._ending_ms = options.starting_ms, options.ending_ms
        self._has_times = self._starting_ms is not None or self._ending_ms is not None
        names = [*self._chosen, *(["storeTimestamp"] if self._has_times else [])]
        self._decoder = BatchDecoder(arrow_schema(names)) if names else None

    def wanted(self, data: Bytes, positions: Positions) -> tuple[Positions, list[Damage]]:
        """Return the positions of wanted records, and what is damaged."""
        if self._decoder is None or not len(positions):
            return positions, []
        decoded = self._decoder.decode(data, positions)
        bad = {damage.position for damage in decoded.damage}
        if bad:
            positions = positions[~np.isin(positions, list(bad))]
        return positions[self._mask(decoded.batch)], decoded.damage

    def _mask(self, batch: Any) -> Any:
        mask = np.ones(batch.num_rows, dtype=np.bool_)
        for name, chosen in self._chosen.items():
            mask &= mask_of(pc.is_in(batch.column(name), chosen))
        if self._has_times:
            times_us = numbers_of(batch.column("storeTimestamp"), np.int64)
            if self._starting_ms is not None:
                mask &= times_us >= self._starting_ms * 1_000
            if self._ending_ms is not None:
                mask &= times_us < self._ending_ms * 1_000
        return mask
