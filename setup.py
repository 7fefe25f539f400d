"""Builds the compiled core where Cython, a C compiler and Python's headers are.

Without them nothing is lost but speed. All else of the package is in pyproject.toml.
See docs/internals/core.md.
"""

import sys
from pathlib import Path

from setuptools import Extension, setup

CORE = Path("src/orbitmq/core")
PARTS = [*map(str, sorted((CORE / "compiled_parts").glob("*.pxi"))), str(CORE / "crc.h")]


def extensions() -> list[Extension]:
    """Return the compiled core, or nothing when it cannot even be turned into C."""
    try:
        from Cython.Build import cythonize

        core = Extension(
            "orbitmq.core.compiled",
            [str(CORE / "compiled.pyx")],
            depends=PARTS,
            extra_compile_args=[] if sys.platform == "win32" else ["-O2"],
            optional=True,
        )
        built: list[Extension] = cythonize([core], quiet=True)
        return built
    except Exception as error:  # no reason is good enough to have no broker at all
        sys.stderr.write(f"the core is not compiled: {error!r}\n")
        return []


setup(ext_modules=extensions())
