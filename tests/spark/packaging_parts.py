"""An environment as the guide has users make it: our wheel and what it asks for, nothing else.

In: requirements, as pip takes them. Out: a virtual environment that holds what they resolve to.
Rules:
1. Our wheel is made of this source. All else is copied, file by file, from the environment that
   runs this: no network is asked.
2. What a requirement does not name is not there, though the environment that runs this has it.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
OURS = "orbitmq"
LIMIT_S = 120


def made_environment(folder: Path, requirements: Iterable[str]) -> Path:
    """Make an environment below a folder that holds what these requirements resolve to."""
    made = folder / "env"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", made], check=True, timeout=LIMIT_S
    )
    install = ["--python", str(made / "bin/python"), "install", "--no-deps", str(_wheel(folder))]
    _pip(*install)
    (packages,) = made.glob("lib/python*/site-packages")
    (ours,) = distributions(name=OURS, path=[str(packages)])
    for found in resolved(ours, map(Requirement, requirements)):
        _copy(found, packages)
    return made


def resolved(ours: Distribution, wanted: Iterable[Requirement]) -> list[Distribution]:
    """Return the distributions that requirements resolve to, without ours."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    left = list(wanted)
    while left:
        each = left.pop()
        name = canonicalize_name(each.name)
        one = ours if name == OURS else distribution(name)
        assert each.specifier.contains(one.version), f"{each}, but there is {name} {one.version}"
        found[name] = one
        for extra in {"", *each.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            left += _asked_for(one, extra)
    found.pop(OURS, None)
    return list(found.values())


def _asked_for(one: Distribution, extra: str) -> list[Requirement]:
    """Return what a distribution asks for, by itself or for the sake of an extra."""
    every = [Requirement(text) for text in one.requires or ()]
    return [each for each in every if not each.marker or each.marker.evaluate({"extra": extra})]


def _wheel(folder: Path) -> Path:
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    _pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source))
    (found,) = folder.glob(f"{OURS}-*.whl")
    return found


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *arguments]
    subprocess.run(command, check=True, timeout=LIMIT_S)


def _copy(one: Distribution, packages: Path) -> None:
    """Copy a distribution; programs beside the packages are left out."""
    assert one.files is not None
    for file in one.files:
        source = Path(str(file.locate()))
        if ".." not in file.parts and source.exists():
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
