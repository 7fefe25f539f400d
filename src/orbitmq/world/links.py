"""Folders that consist of links to files and folders elsewhere.

In: a folder and what it shall lead to. Out: the folder, with a link for each, by its name.
Rule: what is there already stays; several processes may make the same folder at once.
"""

from collections.abc import Iterable
from pathlib import Path

from orbitmq.world.file_steps import refusing


def link_into(folder: Path, targets: Iterable[Path]) -> None:
    """Make a folder of links; what they lead to need not be there. Raises StoreError."""
    with refusing("make links in", folder):
        folder.mkdir(parents=True, exist_ok=True)
        for target in targets:
            if not (folder / target.name).is_symlink():
                _link(folder / target.name, target)


def _link(path: Path, target: Path) -> None:
    try:
        path.symlink_to(target)
    except FileExistsError:
        return  # another process was quicker
