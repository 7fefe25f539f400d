"""Checks of our own mistakes that cannot be switched off.

In: a claim that must hold and the sentence that explains it. Out: nothing, or a BrokenInvariant.
Rule: `ensure` guards against bugs of ours; what the world does wrong is an error of `errors`.
"""


class BrokenInvariant(AssertionError):
    """A claim that the code relies on does not hold: a bug of ours."""


def ensure(claim: object, message: str) -> None:
    """Raise BrokenInvariant with `message` unless `claim` is true."""
    if not claim:
        raise BrokenInvariant(message)
