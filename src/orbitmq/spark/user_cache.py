"""Where the user's cache has what is made once for a Java, a Spark or an environment.

In: what a thing was made of. Out: its place, another one for each other text.
Rule: XDG_CACHE_HOME says where the cache is, never a project.
"""

import hashlib
from pathlib import Path

from orbitmq.world.machine import environment_text, home_folder

_DIGEST_CHARS = 16


def cached(kind: str, made_of: str) -> Path:
    """Return the place of a thing of this kind that was made of this."""
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:_DIGEST_CHARS]
    cache = environment_text("XDG_CACHE_HOME")
    folder = Path(cache) if cache else home_folder() / ".cache"
    return folder / "orbitmq" / f"{kind}-{digest}"
