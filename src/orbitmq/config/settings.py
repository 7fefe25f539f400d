"""The settings machinery: typed settings with the original's key names, from text and back.

In: a Settings class (one per process), the properties of its file and of the command line.
Out: a frozen settings value, notes for the log, the text of all settings, or SettingError.

To add a process, derive a class from Settings and add it to SETTINGS_BY_PROCESS; to add a key, a
field `name: Annotated[type, fact("Sentence.")] = default` of type bool, int, str or Literal. Keys
of the original that change nothing here go into `without_effect`. Then run `make docs`.

Rules:
1. A key is obeyed, accepted without effect, or unknown; whoever starts the process is told which.
2. Only keys marked changeable may be changed over the wire; never a path, an address or a port.
3. A file that the original runs with starts here, too: a number of a file that is outside its range
   becomes the nearest one that is allowed, with a note, unless `strict`, or exact (it names
   something, as a port does). Whoever gives a number by hand gets an error.
4. Nothing here reads files or the environment.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, get_args, get_origin
from typing import get_type_hints as type_hints_of

import msgspec

from orbitmq.config.properties import write_properties
from orbitmq.ensure import ensure
from orbitmq.errors import SettingError

TEXT_CHARS_MAX = 4_096
"""Linux paths end at 4,096 bytes, and no other text setting is longer."""

SUGGESTION_COUNT_MAX = 20
"""Looking for the nearest name is slow; a file with more unknown keys is not a settings file."""

MARKS = ("changeable", "secret", "exact")

HIDDEN = "******"

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_SECRET_NAME = re.compile("pass|secret|token|credential", re.IGNORECASE)
_TRUTHS = {"true": True, "false": False}


class NoEffect(NamedTuple):
    """A key of the original that changes nothing here: its default there, and why."""

    default: str
    reason: str
    refused: tuple[str, ...] = ()
    """Values that promise what is not kept here: with one of them nothing is started."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of every process's settings. `kept` holds given keys that have no effect."""

    without_effect: ClassVar[Mapping[str, NoEffect]] = {}

    kept: dict[str, str] = msgspec.field(default_factory=dict)


S = TypeVar("S", bound=Settings)


def fact(
    sentence: str,
    *,
    unit: str = "",
    least: int | None = None,
    most: int | None = None,
    original: str | None = None,
    **marks: bool,
) -> msgspec.Meta:
    """Return what a settings field's annotation carries; `marks` are those of MARKS.

    `original` is the default of the original where ours differs (`-`: it has no such key). The key
    is the field's name in camelCase, or what `msgspec.field(name=..., default=...)` says.
    """
    ensure(set(marks) <= set(MARKS), f"unknown marks {marks}")
    extra = {"unit": unit, "least": least, "most": most, "original": original, **marks}
    return msgspec.Meta(description=sentence, extra=extra)


class Fact(NamedTuple):
    """Everything known about one setting, read from its field."""

    name: str
    key: str
    kind: Any
    default: bool | int | str
    sentence: str
    unit: str
    least: int | None
    most: int | None
    original: str | None
    changeable: bool
    secret: bool
    exact: bool

    @property
    def expected(self) -> str:
        """What a value must look like, in words."""
        if self.kind is bool:
            return "true or false"
        if self.kind is int:
            unit = f" ({self.unit})" if self.unit else ""
            return f"a whole number from {self.least} to {self.most}{unit}"
        if self.kind is str:
            return f"a text of at most {TEXT_CHARS_MAX} characters"
        return "one of " + ", ".join(get_args(self.kind))


def facts_of(settings_type: type[Settings]) -> tuple[Fact, ...]:
    """Return the facts of every obeyed setting, in the order of the class."""
    hints = type_hints_of(settings_type, include_extras=True)
    keys = settings_type.__struct_encode_fields__
    defaults = settings_type.__struct_defaults__
    fields = zip(settings_type.__struct_fields__, keys, defaults, strict=True)
    return tuple(
        _fact(name, key, default, hints[name]) for name, key, default in fields if name != "kept"
    )


def _fact(name: str, key: str, default: Any, hint: Any) -> Fact:
    ensure(get_origin(hint) is Annotated, f"setting {name} lacks its fact")
    kind, meta = get_args(hint)
    extra = dict(meta.extra)
    ensure(not isinstance(kind, UnionType), f"setting {name} has a type without a text form")
    is_literal = get_origin(kind) is Literal
    ensure(is_literal or kind in (bool, int, str), f"setting {name} has an unreadable type")
    is_open = kind is int and (extra["least"] is None or extra["most"] is None)
    ensure(not is_open, f"setting {name} lacks its range")
    marks = {mark: extra.pop(mark, False) for mark in MARKS}
    return Fact(name, key, kind, default, meta.description, **extra, **marks)


def load_settings(
    settings_type: type[S],
    properties: Mapping[str, str],
    overrides: Mapping[str, str] | None = None,
    *,
    strict: bool = False,
) -> tuple[S, list[str]]:
    """Return the settings that `properties` make, `overrides` winning, and notes for the log.

    Raises SettingError for a value that cannot be used and for unknown keys of `overrides`; with
    `strict` also for unknown keys of `properties` and their numbers outside a range (rule 3). The
    error names all of them.
    """
    given = {**properties, **(overrides or {})}
    facts = {one.key: one for one in facts_of(settings_type)}
    unknown = [key for key in given if key not in {*facts, *settings_type.without_effect}]
    refused = unknown if strict else [key for key in unknown if key in (overrides or {})]
    if refused:
        raise SettingError("; ".join(_notes_on_unknown(settings_type, refused)))
    notes = _notes_on_unknown(settings_type, unknown)
    weaker = {key: value for key, value in properties.items() if key not in (overrides or {})}
    nearest, clamp_notes = ({}, []) if strict else _clamp(facts, weaker)
    values = _read_values(facts, given | nearest)
    notes += clamp_notes
    kept = {key: value for key, value in given.items() if key not in facts}
    _refuse_promises(settings_type, kept)
    notes += [
        f"{key} is accepted without effect: {settings_type.without_effect[key].reason}"
        for key in kept
        if key in settings_type.without_effect
    ]
    return settings_type(**values, kept=kept), notes


def _refuse_promises(settings_type: type[Settings], kept: Mapping[str, str]) -> None:
    """Raise SettingError for values that promise what is not kept; all of them are named."""
    texts = []
    for key, value in kept.items():
        no_effect = settings_type.without_effect.get(key)
        if no_effect is not None and value.strip().lower() in map(str.lower, no_effect.refused):
            texts.append(f"{key}={_shown(value)} cannot be used: {no_effect.reason}")
    if texts:
        raise SettingError("; ".join(texts))


def change_settings(settings: S, changes: Mapping[str, str]) -> S:
    """Return `settings` with `changes`; raises SettingError for a value that cannot be used."""
    facts = {one.key: one for one in facts_of(type(settings))}
    return msgspec.structs.replace(settings, **_read_values(facts, changes))


def refusals(settings_type: type[Settings], keys: Iterable[str]) -> list[str]:
    """Say for each key that may not be changed over the wire why; empty when all may."""
    facts = {one.key: one for one in facts_of(settings_type)}
    unknown = [key for key in keys if key not in {*facts, *settings_type.without_effect}]
    texts = _notes_on_unknown(settings_type, unknown)
    for key in keys:
        if key in settings_type.without_effect:
            texts.append(f"{key} has no effect here: {settings_type.without_effect[key].reason}")
        elif key in facts and not facts[key].changeable:
            texts.append(f"{key} cannot be changed over the network; set it with -c or -D at start")
    return texts


def render_properties(settings: Settings) -> str:
    """Return every setting as `key=value` lines in order: obeyed, without effect, and unknown ones.

    Secrets are hidden, also those that only the name of an unknown key gives away.
    """
    table = {key: one.default for key, one in settings.without_effect.items()}
    for key, value in settings.kept.items():
        table[key] = HIDDEN if _SECRET_NAME.search(key) and value else value
    for one in facts_of(type(settings)):
        value = _text(getattr(settings, one.name))
        table[one.key] = HIDDEN if one.secret and value else value
    return write_properties(dict(sorted(table.items())))


def as_properties(settings: Settings, settings_type: type[Settings]) -> dict[str, str]:
    """Return the values of those settings that `settings_type` has, too, secrets included."""
    return {one.key: _text(getattr(settings, one.name)) for one in facts_of(settings_type)}


def _notes_on_unknown(settings_type: type[Settings], unknown: list[str]) -> list[str]:
    known = [one.key for one in facts_of(settings_type)] + list(settings_type.without_effect)
    notes = [_note_on_unknown(key, known) for key in unknown[:SUGGESTION_COUNT_MAX]]
    left = len(unknown) - len(notes)
    return [*notes, f"and {left} more unknown settings"] if left else notes


def _note_on_unknown(key: str, known: list[str]) -> str:
    shown = _shown(key)
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(shown.lower(), by_lower, n=1)
    hint = f"; did you mean {by_lower[near[0]]}?" if near else ""
    return f"unknown setting {shown}{hint}"


def _shown(text: str) -> str:
    """Return a text of a peer so that it cannot break a log line or fill it."""
    plain = "".join(one if one.isprintable() else "?" for one in text[:80])
    return plain + "..." if len(text) > len(plain) else plain


def _read_values(
    facts: Mapping[str, Fact], given: Mapping[str, str]
) -> dict[str, bool | int | str]:
    values: dict[str, bool | int | str] = {}
    problems: list[str] = []
    for key, text in given.items():
        if key not in facts:
            continue
        value = _read_value(facts[key], text)
        if value is None:
            shown = HIDDEN if facts[key].secret else _shown(text)
            problems.append(f"{key}={shown} cannot be used; expected {facts[key].expected}")
        else:
            values[facts[key].name] = value
    if problems:
        raise SettingError("; ".join(problems))
    return values


def _read_value(one: Fact, text: str) -> bool | int | str | None:
    """Return the value that `text` stands for, or None when it stands for none."""
    if one.kind is str:
        return text if len(text) <= TEXT_CHARS_MAX else None
    word = text.strip()
    if one.kind is bool:
        return _TRUTHS.get(word.lower())
    if one.kind is int:
        return _read_number(one, word)
    choices = {choice.lower(): str(choice) for choice in get_args(one.kind)}
    return choices.get(word.lower())


def _read_number(one: Fact, word: str) -> int | None:
    if not _WHOLE_NUMBER.fullmatch(word):
        return None
    number = int(word)
    return number if number == _nearest(one, number) else None


def _nearest(one: Fact, number: int) -> int:
    """Return the number of the setting's range that is nearest to `number`."""
    return max(one.least or 0, min(one.most or 0, number))


def _clamp(facts: Mapping[str, Fact], given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return what is used instead of numbers outside their range, and a note on each (rule 3)."""
    used: dict[str, str] = {}
    notes: list[str] = []
    for key, text in given.items():
        one, word = facts.get(key), text.strip()
        if one is None or one.kind is not int or one.exact or not _WHOLE_NUMBER.fullmatch(word):
            continue
        nearest = _nearest(one, int(word))
        if nearest != int(word):
            used[key] = str(nearest)
            notes.append(f"{key}={word} is not {one.expected}; {nearest} is used")
    return used, notes


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
