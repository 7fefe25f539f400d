"""Placeholders in what a listener is told: `${NAME}` and `${NAME:otherwise}`.

In: a text, the environment. Out: the text with the values of variables in it.
Rule: a variable that is not set and has no value for that case is an error that names it.
"""

import re
from collections.abc import Mapping

from orbitmq.errors import SettingError

_PLACEHOLDER = re.compile(r"\$\{(\w+)(?::([^{}]*))?\}", re.ASCII)


def resolved(text: str, environment: Mapping[str, str]) -> str:
    """Return a text with its placeholders replaced; raises SettingError for one without a value."""

    def value(found: re.Match[str]) -> str:
        name, otherwise = found.groups()
        given = environment.get(name, otherwise)
        if given is None:
            raise SettingError(
                f"{text!r}: the variable {name} is not set; set it, or write ${{{name}:otherwise}}"
            )
        return given

    return _PLACEHOLDER.sub(value, text)
