"""The guide to the shell, and the examples in the commands' own help: they can be run as shown."""

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.cli.main import make_parser
from orbitmq.client.admin import Admin
from tests.cli.shell_runs import PATIENCE_S, environment_of
from tests.foreign.judged import judged_original, system_under_test

GUIDE = Path(__file__).parents[2] / "docs/guides/shell.md"
ENDLESS = {"tail": "--no-follow"}


def guide_lines() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def help_examples(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The examples below a parser's help and those of the parsers in it."""
    for line in (parser.epilog or "").splitlines():
        example = line.replace("%%", "%").strip()
        if re.match(r"(\w+ \| )?orbitmq (?!completion)", example):
            yield re.split(r"  +", example.partition("orbitmq ")[2])[0]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from help_examples(inner)


@pytest.mark.parametrize("example", sorted(set(help_examples(make_parser()))))
def test_each_example_in_a_help_text_is_taken(example: str) -> None:
    words = shlex.split(example)
    typed = words[: words.index(">")] if ">" in words else words
    assert callable(make_parser().parse_args(typed).run)


@pytest.mark.skipif(judged_original() is not None, reason="the guide is about what ours shows")
@pytest.mark.timeout(240)
def test_the_guide_can_be_followed_from_top_to_bottom(tmp_path: Path) -> None:
    lines = guide_lines()
    assert len(lines) > 20
    orbitmq = f"{shlex.quote(sys.executable)} -m orbitmq"
    with system_under_test(tmp_path / "data") as system:
        variables = {**environment_of(tmp_path), "NAMESRV_ADDR": system.namesrv}
        for line in lines:
            command = line.partition("   ")[0]
            for verb, ending in ENDLESS.items():
                if f"orbitmq {verb} " in command and ending not in command:
                    command += f" {ending}"
            done = subprocess.run(
                ["bash", "-c", re.sub(r"\borbitmq (?=[a-z])", f"{orbitmq} ", command)],
                env=variables,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert (done.returncode, done.stderr) == (0, ""), line


def test_the_table_of_methods_has_all_that_admin_has() -> None:
    page = GUIDE.with_name("admin.md").read_text()
    rows = page.partition("| for | methods |")[2].partition("\n\n")[0]
    shown = set(re.findall(r"`(\w+)`", rows))
    there = {name for name in dir(Admin) if not name.startswith("_")}
    assert shown == there - {"start", "close"}
