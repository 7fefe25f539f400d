"""Which of the two cores this process runs: the compiled one where it is there, else the plain one.

In: the environment. Out: the module of the compiled core or None, and why.

Rules:
1. `ORBITMQ_CORE=plain` or `compiled` decides; the compiled one must then be there.
2. The compiled module is never imported by a statement: it need not exist, and what checks our
   imports and types does not know it.
"""

import importlib
from types import ModuleType
from typing import NamedTuple

from orbitmq.errors import SettingError
from orbitmq.world.machine import environment_text

VARIABLE = "ORBITMQ_CORE"
MODULE = "orbitmq.core.compiled"
REMEDY = (
    "sends cost about five times as much CPU; for the compiled core install a C compiler and"
    " Python's headers (Debian: gcc python3-dev) and install OrbitMQ again"
)


class Chosen(NamedTuple):
    """The core of this process."""

    compiled: ModuleType | None
    reason: str
    """Why it is this one, for the log."""

    @property
    def name(self) -> str:
        """What `ORBITMQ_CORE` calls it."""
        return "plain" if self.compiled is None else "compiled"


def choose(wanted: str) -> Chosen:
    """Return the core that is wanted; empty: the best there is. Raises SettingError."""
    if wanted not in ("", "plain", "compiled"):
        raise SettingError(f"{VARIABLE} is {wanted!r}: write plain, compiled, or leave it out")
    if wanted == "plain":
        return Chosen(None, f"plain core, as {VARIABLE} says")
    try:
        compiled = importlib.import_module(MODULE)
    except ImportError as error:
        if wanted:
            raise SettingError(
                f"{VARIABLE} is compiled, but there is no compiled core ({error}): {REMEDY}"
            ) from error
        return Chosen(None, f"plain core, for there is no compiled one ({error}): {REMEDY}")
    return Chosen(compiled, "compiled core")


def from_environment() -> Chosen:
    """Return the core that the environment asks for."""
    return choose(environment_text(VARIABLE).strip())
