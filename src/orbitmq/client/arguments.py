"""Whether arguments are what their annotations say, told before they end in a bare TypeError.

In: a value and its annotation; a class whose methods programs call. Out: what the value must be,
or an ArgumentError that names the argument, what came, and what to write instead.

Rules:
1. Only mistakes are told: what cannot be judged (protocols, type variables) passes.
2. True and False are no numbers. A text is no sequence of texts, a generator no sequence.
3. What programs call for each message is checked by `Producer` itself, when something failed.
"""

import collections.abc
import difflib
import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from orbitmq.errors import ArgumentError, SettingError

C = TypeVar("C", bound=type)

_WORDS: dict[Any, str] = {
    str: "text",
    bytes: "bytes",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    types.NoneType: "None",
}
_CONTAINERS = {
    collections.abc.Sequence: "a list or tuple",
    collections.abc.Collection: "a list, tuple or set",
    collections.abc.Iterable: "a list or another iterable",
    collections.abc.Mapping: "a dict",
    tuple: "a tuple",
    list: "a list",
    dict: "a dict",
}
_UNIONS = (typing.Union, types.UnionType)
SHOWN_CHARS = 60


def is_fit(value: object, hint: Any) -> bool:
    """Whether a value is what an annotation says (rules 1 and 2)."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in _UNIONS:
        return any(is_fit(value, one) for one in inner)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin in _CONTAINERS:
        return _is_container(value, origin, inner)
    if hint is None or hint is Any:
        return hint is Any or value is None
    if not isinstance(hint, type) or getattr(hint, "_is_protocol", False):
        return True
    if isinstance(value, bool):
        return hint in (bool, object)
    return isinstance(value, (int, float) if hint is float else hint)


def _is_container(value: object, kind: type, inner: tuple[Any, ...]) -> bool:
    if not isinstance(value, kind) or isinstance(value, str | bytes):
        return False
    if isinstance(value, Mapping):
        keys, values = inner if len(inner) == 2 else (Any, Any)
        return all(is_fit(key, keys) and is_fit(one, values) for key, one in value.items())
    return not isinstance(value, Collection) or all(is_fit(one, inner[0]) for one in value)


def wanted(hint: Any) -> str:
    """Return what an annotation asks for, in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in _UNIONS:
        return " or ".join(wanted(one) for one in inner)
    if origin is collections.abc.Callable:
        return "a function"
    if origin in _CONTAINERS:
        return f"{_CONTAINERS[origin]} of {' and '.join(map(_plural, inner)) or 'anything'}"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"one of {', '.join(f'{hint.__name__}.{one.name}' for one in hint)}"
    return _WORDS.get(hint, f"a {getattr(hint, '__name__', hint)}")


def _plural(hint: Any) -> str:
    words = {str: "texts", int: "whole numbers", ...: ""}
    return words.get(hint, f"{getattr(hint, '__name__', hint)}s")


def fault_of(name: str, value: object, hint: Any) -> str | None:
    """Return what is wrong with an argument, in a sentence; None when nothing is."""
    if is_fit(value, hint):
        return None
    for inner_name, one, inner_hint in _elements(name, value, hint):
        if not is_fit(one, inner_hint):
            return fault_of(inner_name, one, inner_hint)
    shown = repr(value)
    shown = shown if len(shown) <= SHOWN_CHARS else f"{shown[:SHOWN_CHARS]}…"
    return f"{name} is {shown}; it must be {wanted(hint)}{_advice(name, value, hint)}"


def _elements(name: str, value: object, hint: Any) -> Iterator[tuple[str, object, Any]]:
    """Return what is in a container of the right kind: its name there, itself, what it must be."""
    for kind in get_args(hint) if get_origin(hint) in _UNIONS else (hint,):
        origin, inner = get_origin(kind), get_args(kind)
        if origin not in _CONTAINERS or not isinstance(value, origin) or isinstance(value, str):
            continue
        if isinstance(value, Mapping) and len(inner) == 2:
            yield from ((f"a key of {name}", key, inner[0]) for key in value)
            yield from ((f"{name}[{key!r}]", one, inner[1]) for key, one in value.items())
        elif isinstance(value, Collection) and inner:
            yield from ((f"{name}[{number}]", one, inner[0]) for number, one in enumerate(value))


def _advice(name: str, value: object, hint: Any) -> str:
    """Return what to write instead, where that is clear."""
    kinds = get_args(hint) or (hint,)
    if get_origin(hint) in _CONTAINERS and isinstance(value, collections.abc.Iterator):
        return f": write list({name})"
    if get_origin(hint) in _CONTAINERS and isinstance(value, str | bytes):
        return f": write [{name}]"
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, Enum) and isinstance(value, str):
            near = difflib.get_close_matches(value.upper(), kind.__members__, 1)
            return f"; did you mean {kind.__name__}.{near[0]}?" if near else ""
    if str in kinds and isinstance(value, bytes):
        return f": write {name}.decode()"
    if bytes in kinds and isinstance(value, str):
        return f": write {name}.encode()"
    if str in kinds and isinstance(value, int | float):
        return f": write {str(value)!r}"
    return ""


def check_arguments(names: Mapping[str, object], hints: Mapping[str, Any], where: str = "") -> None:
    """Raise ArgumentError for the first argument that is not what its annotation says."""
    for name, value in names.items():
        fault = fault_of(name, value, hints[name]) if name in hints else None
        if fault is not None:
            raise ArgumentError(f"{where}{fault}", name)


def checks_arguments(but: Collection[str] = ()) -> Callable[[C], C]:
    """Have all public methods of a class check their arguments first, except some."""

    def decorate(kind: C) -> C:
        seen: set[str] = set()
        for base in kind.__mro__[:-1]:
            for name, member in list(vars(base).items()):
                is_method = isinstance(member, types.FunctionType) and not name.startswith("_")
                if is_method and name not in seen and name not in but and _has_arguments(member):
                    setattr(kind, name, _checking(member))
                seen.add(name)
        return kind

    return decorate


def _has_arguments(function: Callable[..., Any]) -> bool:
    return len(inspect.signature(function).parameters) > 1


def _checking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that checks its arguments, then does the same."""
    signature = inspect.signature(function)
    where = f"{function.__name__}: "

    @functools.cache
    def hints() -> Mapping[str, Any]:
        return _option_hints(get_type_hints(function))

    def check(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs).arguments
        options = bound.pop("options", {}) if _takes_options(signature) else {}
        for name in options:
            if name not in hints():
                raise SettingError(unknown(name, hints()))
        check_arguments({**bound, **options}, hints(), where)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def waiting(*args: Any, **kwargs: Any) -> Any:
            check(*args, **kwargs)
            return await function(*args, **kwargs)

        return waiting

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return function(*args, **kwargs)

    return plain


def _takes_options(signature: inspect.Signature) -> bool:
    last = [*signature.parameters.values()][-1]
    return last.kind is last.VAR_KEYWORD


def _option_hints(hints: dict[str, Any]) -> Mapping[str, Any]:
    """Return the annotations with those of `**options: Unpack[...]` among them."""
    hints.pop("return", None)
    options = get_args(hints.pop("options", None))
    return {**hints, **(get_type_hints(options[0]) if options else {})}


def unknown(name: str, known: Collection[str]) -> str:
    """Say that there is no option of a name, with the nearest one that there is."""
    near = difflib.get_close_matches(name, known, 1)
    advice = f"; did you mean {near[0]}?" if near else ""
    return f"there is no option {name}{advice}"
