"""The table of request codes: complete, and each code is served by one function."""

from collections import Counter
from pathlib import Path

from orbitmq.broker import dispatch, handlers


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
