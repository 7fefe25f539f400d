"""The table of request codes: complete, and each code is served by one function."""

from collections import Counter
from pathlib import Path

from orbitmq.broker import dispatch, handlers
from orbitmq.wire.codes import RequestCode

ROOT = Path(__file__).parents[2]
CODES_4_9_7 = """
    10 11 12 14 15 17 21 25 26 28 29 30 31 32 33 34 35 36 37 38 41 42 43 45 46 50 51 52 53 54
    200 201 202 203 204 207 208 215 222 223 300 303 305 306 307 308 309 310 314 315 316 317 320 321
    323 324 325 328 329
"""
"""What a running broker of 4.9.7 does not answer with 3, of 0 to 1099 and all of RequestCode."""
CODES_5 = {18, 225, 343, 345, 351, 352, 353, 361}
"""What 5.x adds and this broker serves."""


def test_every_module_of_handlers_is_in_the_table() -> None:
    folder = Path(handlers.__file__).parent
    names = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    with_codes = {name for name in names if "\nHANDLERS" in (folder / f"{name}.py").read_text()}
    listed = {module.__name__.rpartition(".")[2] for module in dispatch.MODULES}
    assert listed == with_codes


def test_no_code_has_two_handlers() -> None:
    codes = Counter(int(code) for module in dispatch.MODULES for code in module.HANDLERS)
    assert [code for code, count in codes.items() if count > 1] == []
    assert len(codes) > 50


def served() -> set[int]:
    return {int(code) for module in dispatch.MODULES for code in module.HANDLERS}


def test_a_code_of_4_9_7_is_served_or_named_with_the_feature_it_waits_for() -> None:
    known = {int(code) for code in CODES_4_9_7.split()}
    unserved = {int(code) for code in dispatch.UNSERVED}
    assert served() & unserved == set()
    assert served() | unserved == known | CODES_5
    assert served() - known == CODES_5


def test_the_guide_names_the_features_that_are_not_served_yet() -> None:
    page = (ROOT / "docs" / "guides" / "compatibility.md").read_text()
    codes = page.partition("The codes:\n")[2].partition(" A filter server")[0]
    named = {"transactions": "37 and 323", "access control": "50 to 54"}
    named["request-reply"] = "324 and 325"
    assert set(named) == set(dispatch.UNSERVED.values())
    assert all(f"{numbers} ({feature})" in codes for feature, numbers in named.items())
    assert RequestCode.REGISTER_FILTER_SERVER not in dispatch.UNSERVED
