"""The recorded frames of this folder, decoded and paired.

In: the `frames-*.jsonl.gz` files. Out: one Recorded per frame, in the order of its capture.
A response is paired with its request by the two ports and the opaque; where the request is not in
the capture (at most 40 of one kind are), `request` is None.
"""

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from orbitmq.wire.command import Command, decode_command
from orbitmq.wire.frame import Frame, cut_frame

FOLDER = Path(__file__).parent


class Recorded(NamedTuple):
    """One frame of a capture."""

    capture: str
    line: int
    data: bytes
    frame: Frame
    command: Command
    request: Command | None

    @property
    def place(self) -> str:
        """Where to look: capture and line."""
        return f"{self.capture}:{self.line}"


@cache
def captures() -> tuple[str, ...]:
    """Return the names of the captures, such as `go-2.x`."""
    names = (path.name for path in FOLDER.glob("frames-*.jsonl.gz"))
    return tuple(sorted(name.removeprefix("frames-").removesuffix(".jsonl.gz") for name in names))


@cache
def recorded(capture: str) -> tuple[Recorded, ...]:
    """Return every frame of one capture."""
    return tuple(_read(capture))


def all_recorded() -> list[Recorded]:
    """Return every frame of every capture."""
    return [entry for capture in captures() for entry in recorded(capture)]


def _read(capture: str) -> Iterator[Recorded]:
    requests: dict[tuple[int, int, int], Command] = {}
    with gzip.open(FOLDER / f"frames-{capture}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            entry = json.loads(line)
            data = bytes.fromhex(entry["frame"])
            frame = cut_frame(data, 0)
            assert frame is not None, f"{capture}:{number} is not a whole frame"
            command = decode_command(frame)
            request = None
            if command.is_response:
                request = requests.get((entry["dst"], entry["src"], command.opaque))
            else:
                requests[entry["src"], entry["dst"], command.opaque] = command
            yield Recorded(capture, number, data, frame, command, request)
