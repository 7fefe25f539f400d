"""What the commands with the original's flags share: settings among the words, and its usage.

In: the words of a command line. Out: settings as pairs, or WrongArguments.
Rule: settings are written `--key value`, `--key=value` or `key=value`.
"""

import argparse
from typing import NoReturn


class WrongArguments(Exception):
    """The command line cannot be read."""


class OriginalParser(argparse.ArgumentParser):
    """A parser whose mistakes the command answers with the original's exit code."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line."""
        raise WrongArguments(message)


def read_words(words: list[str]) -> dict[str, str]:
    """Return the settings among the words of the command line."""
    overrides: dict[str, str] = {}
    left = iter(words)
    for word in left:
        key, equals, value = word.removeprefix("--").partition("=")
        if not equals and word.startswith("--"):
            found = next(left, None)
            if found is None:
                raise WrongArguments(f"{word} needs a value")
            value = found
        elif not equals or (word.startswith("-") and not word.startswith("--")):
            raise WrongArguments(f"unknown argument {word}; settings are written --key value")
        if not key:
            raise WrongArguments(f"{word} names no setting")
        overrides[key] = value
    return overrides
