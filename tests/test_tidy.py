"""The source keeps the house rules of `tidy_rules`, and each rule can still fail.

In: every text file that git tracks or would track. Out: one failure per broken rule, with all
offenders as file:line. The second half feeds each rule a bad and a good sample.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from tests import tidy_rules
from tests.tidy_rules import RULES, SLEEPERS, Rule, Source, looks_at

ROOT = Path(__file__).parent.parent


@cache
def sources() -> tuple[Source, ...]:
    """Every text file that is tracked or new; what is ignored or removed is left out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    found = []
    for name in sorted(set(listed.split("\0")) - {""}):
        text = text_of(ROOT / name)
        if text is not None:
            found.append(Source(PurePosixPath(name), text))
    return tuple(found)


def text_of(path: Path) -> str | None:
    """The contents of a text file; None for other bytes, links and what is gone."""
    if path.is_symlink() or not path.is_file():
        return None
    data = path.read_bytes()
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def name_of(rule: Rule) -> str:
    return rule.__name__


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_the_source_keeps_the_rule(rule: Rule) -> None:
    broken = [
        f"{source.path}:{line}: {rule.__name__}: {what}"
        for source in sources()
        if looks_at(rule, source)
        for line, what in rule(source)
    ]
    if broken:
        pytest.fail("\n".join(broken), pytrace=False)


def test_the_reader_sees_code_tests_and_documents() -> None:
    paths = {str(source.path) for source in sources()}
    assert {"src/orbitmq/ensure.py", "tests/test_tidy.py", "Makefile", "README.md"} <= paths


def test_every_file_that_may_sleep_does() -> None:
    asleep = {
        str(source.path)
        for source in sources()
        if source.is_python and any(name == "time.sleep" for _, name in tidy_rules.calls(source))
    }
    assert set(SLEEPERS) <= asleep


def test_tuples_without_a_name_become_fewer() -> None:
    found: Counter[str] = Counter()
    for source in sources():
        if source.is_python and source.path.parts[:2] == ("src", "orbitmq"):
            found[source.path.parts[2]] += len(list(tidy_rules.unnamed_tuples(source)))
    assert +found == tidy_rules.UNNAMED_TUPLES, "name them, and lower the number when it has fallen"


# ---- every rule can fail -------------------------------------------------------------------------

# The unfinished marks and the paths are put together here: this file keeps the rules as well.
MARK, PATH, SHARED = "TO" + "DO", "/" + "root/", "../" + "shared/golden"
PARSER = "from orbitmq.wire.record import FIELD\n"
DEEP = "def f(x):\n if x:\n  for y in x:\n   with y:\n"

DECIDING = (
    "from orbitmq.wire import properties as names\n"
    "from orbitmq.wire.expression import tag_code\n"
    "def f(text):\n"
    ' x = b"CLUSTER\\x01" in text\n'
    " y = names.TRAN_MSG\n"
    " return x or 'WAIT\\\\u0001'\n"
)

# Rule, path of the sample, its text, and the lines that must be reported.
SAMPLES: list[tuple[Rule, str, str, list[int]]] = [
    (tidy_rules.short_functions, "src/a.py", "def f():\n" + " x\n" * 70, [1]),
    (tidy_rules.short_functions, "src/a.py", "class A:\n async def f():\n" + "  x\n" * 70, [2]),
    (tidy_rules.short_functions, "src/a.py", "def f():\n" + " x\n" * 69, []),
    (tidy_rules.small_files, "tests/a.py", "x\n" * 801, [801]),
    (tidy_rules.small_files, "tests/a.py", "x\n" * 800, []),
    (tidy_rules.few_parameters, "src/a.py", "def f(a, b, /, c, d, *e, g, **h): ...", [1]),
    (tidy_rules.few_parameters, "src/a.py", "def f(self, a, b, c, d, e, g): ...", []),
    (tidy_rules.flat_functions, "src/a.py", DEEP + "    while y:\n     x\n", [5]),
    (tidy_rules.flat_functions, "src/a.py", DEEP + "    match y:\n     case 1: x\n", [5]),
    (tidy_rules.flat_functions, "src/a.py", DEEP + "    try:\n     x\n    finally:\n     x\n", [5]),
    (tidy_rules.flat_functions, "src/a.py", DEEP + "    x\n", []),
    (
        tidy_rules.flat_functions,
        "src/a.py",
        "def f(x):\n"
        + " if x: x\n"
        + " elif y: x\n" * 4
        + " else:\n  if x:\n   if x:\n    if x: x\n",
        [10],
    ),
    (tidy_rules.flat_functions, "src/a.py", DEEP + "    def g():\n     if x: x\n", []),
    (tidy_rules.modules_in_their_place, "src/orbitmq/store/a.py", "import time\n", [1]),
    (tidy_rules.modules_in_their_place, "src/orbitmq/wire/a.py", "from asyncio import x\n", [1]),
    (tidy_rules.modules_in_their_place, "src/orbitmq/core/a.py", "import logging.config\n", [1]),
    (tidy_rules.modules_in_their_place, "src/orbitmq/world/a.py", "import pickle\n", [1]),
    (tidy_rules.modules_in_their_place, "src/orbitmq/world/files.py", "import asyncio\n", [1]),
    (tidy_rules.modules_in_their_place, "src/orbitmq/world/net.py", "import asyncio, ssl\n", []),
    (tidy_rules.modules_in_their_place, "src/orbitmq/net/a.py", "import asyncio, struct\n", []),
    (tidy_rules.files_through_world, "src/orbitmq/cli/a.py", "open('x')\n", [1]),
    (tidy_rules.files_through_world, "src/orbitmq/cli/a.py", "import os\nos.remove('x')\n", [2]),
    (tidy_rules.files_through_world, "src/orbitmq/cli/a.py", "from os import fsync\n", [1]),
    (tidy_rules.files_through_world, "src/orbitmq/cli/a.py", "os.path.exists('x')\n", [1]),
    (tidy_rules.files_through_world, "src/orbitmq/cli/a.py", "(path / 'x').read_text()\n", [1]),
    (tidy_rules.files_through_world, "src/orbitmq/cli/a.py", "os.environ['x']\nfile.read()\n", []),
    (tidy_rules.files_through_world, "src/orbitmq/world/a.py", "open('x')\n", []),
    (tidy_rules.clocks_through_world, "src/orbitmq/cli/a.py", "datetime.now(UTC)\n", [1]),
    (tidy_rules.clocks_through_world, "src/orbitmq/cli/a.py", "clock.now()\n", []),
    (tidy_rules.no_unsafe_calls, "src/a.py", "eval(x)\nexec(x)\nyaml.load(x)\n", [1, 2, 3]),
    (tidy_rules.no_unsafe_calls, "src/a.py", "os.system(x)\nrun(x, shell=True)\n", [1, 2]),
    (tidy_rules.no_unsafe_calls, "src/a.py", "from os import system\n", [1]),
    (tidy_rules.no_unsafe_calls, "src/a.py", "yaml.safe_load(x)\nrun(x, shell=False)\n", []),
    (tidy_rules.no_assert, "src/a.py", "x\nassert x\n", [2]),
    (tidy_rules.no_assert, "src/a.py", "ensure(x, 'assert')\n", []),
    (tidy_rules.print_in_cli_only, "src/orbitmq/net/a.py", "print(x)\n", [1]),
    (tidy_rules.print_in_cli_only, "src/orbitmq/cli/a.py", "print(x)\n", []),
    (tidy_rules.no_sleep, "tests/a.py", "import time\ntime.sleep(1)\n", [2]),
    (tidy_rules.no_sleep, "tests/a.py", "from time import sleep\n", [1]),
    (tidy_rules.no_sleep, "tests/a.py", "clock.advance(1)\n", []),
    (tidy_rules.fields_by_name, "src/orbitmq/store/a.py", PARSER + "_OFFSET_AT = 28\n", [2]),
    (
        tidy_rules.fields_by_name,
        "src/orbitmq/store/a.py",
        PARSER + "x = data[start + 36 : 40]\n",
        [2, 2],
    ),
    (
        tidy_rules.fields_by_name,
        "src/orbitmq/store/a.py",
        PARSER + "CODE.unpack_from(data, 12)\n",
        [2],
    ),
    (
        tidy_rules.fields_by_name,
        "src/orbitmq/store/a.py",
        PARSER + "data.find(magic, AT)\nx = 28\n",
        [],
    ),
    (tidy_rules.fields_by_name, "src/orbitmq/store/a.py", "_OFFSET_AT = 28\n", []),
    (
        tidy_rules.records_searched_in_one_place,
        "src/orbitmq/spark/a.py",
        "data.find(_MAGIC_START, 4)\ndata.rfind(BLANK_MAGIC)\n",
        [1, 2],
    ),
    (
        tidy_rules.records_searched_in_one_place,
        "src/orbitmq/store/record_search.py",
        "data.find(_MAGIC_START)\n",
        [],
    ),
    (tidy_rules.head_says_what_flows, "src/a.py", "x = 1\n", [1]),
    (tidy_rules.head_says_what_flows, "src/a.py", '"""One.\n\nTwo.\n"""\n', [1]),
    (tidy_rules.head_says_what_flows, "src/a.py", '"""' + "Line.\n" * 16 + '"""\n', [1]),
    (tidy_rules.head_says_what_flows, "src/a.py", '"""One.\n\nTwo.\nThree.\n"""\n', []),
    (tidy_rules.head_says_what_flows, "src/a/__init__.py", "", []),
    (tidy_rules.telling_names, "src/orbitmq/utils.py", "", [1]),
    (tidy_rules.telling_names, "src/orbitmq/common/a.py", "", [1]),
    (tidy_rules.telling_names, "src/orbitmq/store_impl.py", "", [1]),
    (tidy_rules.telling_names, "src/orbitmq/implicit.py", "", []),
    (tidy_rules.reasons_beside_exceptions, "src/a.py", "x  # noqa\n", [1]),
    (tidy_rules.reasons_beside_exceptions, "src/a.py", "x  # noqa: S101\n", [1]),
    (tidy_rules.reasons_beside_exceptions, "src/a.py", "x  # noqa - because\n", [1]),
    (tidy_rules.reasons_beside_exceptions, "src/a.py", "x  # type: ignore[arg-type]\n", [1]),
    (
        tidy_rules.reasons_beside_exceptions,
        "src/a.py",
        "x  # type: ignore[arg-type]  # noqa: S101 - why\n",
        [1],
    ),
    (
        tidy_rules.reasons_beside_exceptions,
        "src/a.py",
        "x  # noqa: S101, N815 - why\nx  # type: ignore[a-b]  # why\n'# noqa'\n",
        [],
    ),
    (tidy_rules.no_code_in_comments, "src/a.py", "# x = f(1)\n# if x:\n# f(x)\n", [1, 2, 3]),
    (tidy_rules.no_code_in_comments, "src/a.py", "# Sent as is.\nx  # f(x)\n# why: speed\n", []),
    (tidy_rules.decided_in_one_place, "src/orbitmq/broker/a.py", DECIDING, [2, 4, 5, 6]),
    (tidy_rules.decided_in_one_place, "src/orbitmq/core/admit.py", DECIDING, []),
    (tidy_rules.decided_in_one_place, "src/orbitmq/client/a.py", DECIDING, []),
    (tidy_rules.nothing_unfinished, "Makefile", f"x\n# {MARK}: more\n", [2]),
    (tidy_rules.nothing_unfinished, "docs/a.md", "SCHEDULE_TOPIC_XXXX\n", []),
    (tidy_rules.no_machine_paths, "docs/a.md", f"see `{PATH}a`\nsee {SHARED}\n", [1, 2]),
    (tidy_rules.no_machine_paths, "docs/a.md", '"$dir/home/conf" and ~/.cache\n', []),
]


@pytest.mark.parametrize(
    ("rule", "path", "text", "lines"),
    SAMPLES,
    ids=[f"{rule.__name__}-{number}" for number, (rule, *_) in enumerate(SAMPLES)],
)
def test_the_rule_reports_what_is_wrong_in_a_sample(
    rule: Rule, path: str, text: str, lines: list[int]
) -> None:
    assert [line for line, _ in rule(Source(PurePosixPath(path), text))] == lines


def test_every_rule_has_a_sample_that_breaks_it_and_one_that_does_not() -> None:
    assert {rule for rule, _, _, lines in SAMPLES if lines} == set(RULES)
    assert {rule for rule, _, _, lines in SAMPLES if not lines} == set(RULES)


def test_a_parameter_that_is_a_tuple_needs_a_name() -> None:
    text = "def f(a: tuple[int, str], b: 'tuple[int, int]', c: tuple[int, ...], d: Pair): ...\n"
    found = tidy_rules.unnamed_tuples(Source(PurePosixPath("src/a.py"), text))
    assert [what[:4] for _, what in found] == ["f: a", "f: b"]


def test_a_rule_looks_at_its_folders_only() -> None:
    product = Source(PurePosixPath("src/orbitmq/a.py"), "")
    test = Source(PurePosixPath("tests/a.py"), "")
    page = Source(PurePosixPath("docs/a.md"), "")
    assert looks_at(tidy_rules.no_assert, product)
    assert not looks_at(tidy_rules.no_assert, test)
    assert looks_at(tidy_rules.small_files, test)
    assert not looks_at(tidy_rules.small_files, page)
    assert looks_at(tidy_rules.nothing_unfinished, page)


def test_bytes_that_are_no_text_are_left_out(tmp_path: Path) -> None:
    for name, data in (("zip", b"a\0b"), ("latin", b"\xe9"), ("text", "é".encode())):
        (tmp_path / name).write_bytes(data)
    found = [text_of(tmp_path / name) for name in ("zip", "latin", "text", "absent")]
    assert found == [None, None, "é", None]
