"""Folders that are there for a while: made with a name nobody has, removed with all they hold.

In: how the name begins. Out: a path; and nothing, once it is removed.
Rule: only what `make_temporary_folder` has made is given to `remove_tree`.
"""

import shutil
import tempfile
from pathlib import Path

from orbitmq.world.file_steps import refusing


def make_temporary_folder(prefix: str) -> Path:
    """Make a folder where the system keeps such (TMPDIR); only we may look into it."""
    return Path(tempfile.mkdtemp(prefix=prefix))


def remove_tree(folder: Path) -> None:
    """Remove a folder and everything in it; raises StoreError when the system refuses."""
    with refusing("remove folder", folder):
        shutil.rmtree(folder)
