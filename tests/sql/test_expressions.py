"""What SQL92 expressions mean: each line was asked of the original (see tests/foreign)."""

import pytest

from orbitmq.sql import compile_expression

PROPERTIES = {
    "five": "5",
    "word": "x",
    "yes": "true",
    "half": "3.5",
    "long": "3000000000",
    "huge": "99999999999999999999",
    "spaced": " 5 ",
    "typed": "5d",
    "hex": "0x1p3",
    "quote": "it's",
    "zeros": "0000000000000000000000005",
    "under": "1_0",
    "arabic": chr(0x665),
    "zero": "0.0",
    "minus_zero": "-0.0",
    "nan": "NaN",
    "infinite": "Infinity",
    "inf": "inf",
    "TAGS": "TagA",
}

TRUE = [
    # comparing with numbers: the property is read as the number's kind
    "five > 3",
    "five >= 5",
    "five < 5.5",
    "five <= 5L",
    "five = 5",
    "five = 5.0",
    "five = 5L",
    "five <> 6",
    "half = 3.5",
    "half > 3.4",
    "long = 3000000000",
    "huge > 1.5",
    "spaced = 5.0",
    "typed = 5.0",
    "hex = 8.0",
    "zeros = 5",
    "arabic = 5",
    "3 < five",
    "3.0 < five",
    "five > -1",
    "five > - 1",
    "five > --1",
    "five > +1",
    "five > .5",
    "five = 5.",
    "five < 1e1",
    "nan > 1.5",
    "infinite > 1e308",
    # numbers with numbers
    "2 > 1",
    "1 = 1.0",
    "-5 = - 5",
    "9007199254740993 = 9007199254740992.0",
    "00.5 = .5",
    # texts
    "word = 'x'",
    "five = '5'",
    "word <> 'y'",
    "quote = 'it''s'",
    "'a' = 'a'",
    "'' = ''",
    "TAGS = 'TagA'",
    # property with property: texts by =, doubles by <
    "five = five",
    "half < five",
    "minus_zero < zero",
    "zero <> minus_zero",
    "nan > infinite",
    "nan = nan",
    # truths
    "TRUE",
    "true",
    "yes = TRUE",
    "five <> TRUE",
    "TRUE = TRUE",
    "five = 5 = TRUE",
    "five > 3 = TRUE",
    "NOT FALSE",
    "+TRUE",
    "TRUE = five > 3",
    # ranges and lists
    "five BETWEEN 1 AND 10",
    "five BETWEEN 5 AND 5",
    "five BETWEEN half AND 10",
    "five NOT BETWEEN 6 AND 10",
    "five NOT BETWEEN 10 AND 6",
    "five NOT BETWEEN missing AND 1",
    "5 BETWEEN 1 AND 10",
    "five between 1 and 10 and word = 'x'",
    "five IN ('4', '5')",
    "(five) IN('5')",
    "five NOT IN ('4')",
    "five IN ('5') = TRUE",
    # what is missing
    "missing IS NULL",
    "five IS NOT NULL",
    "NULL IS NULL",
    "-five IS NULL",
    "missing = missing2",
    "five <> missing",
    "(missing = 3) IS NULL",
    "missing > 3 IS NULL",
    # logic
    "word = 'x' OR missing = 3",
    "missing = 3 OR word = 'x'",
    "five = 5 OR word > 3",
    "five = 5 or word = 'z' and word = 'y'",
    "NOT (five = 6)",
    "NOT five",
    "NOT TRUE = FALSE",
    "NOT (FALSE AND FALSE)",
    # searches of 5.x
    "TAGS CONTAINS 'ag'",
    "TAGS STARTSWITH 'Tag'",
    "TAGS endswith 'A'",
    "TAGS NOT CONTAINS 'x'",
    "TAGS not startswith 'A'",
    "'xyz' CONTAINS 'y'",
    "TAGS CONTAINS 'Tag' = TRUE",
    "contains IS NULL",
    # spelling
    "five>3AND five<10",
    "five=5.AND TRUE",
    "five/**/=/* a * b **/5",
    "-- a comment\nfive = 5",
    "five = 5 -- the rest, it's free",
    "\tfive\r\n=\f5",
    "$_a1 IS NULL",
    "TRUEx IS NULL",
    "((((five = 5))))",
]

FALSE = [
    "five > 5",
    "five = 6",
    "five = 5 = 5",
    "3 = five",
    "five = missing",
    "five",
    "yes",
    "NOT five = 5",
    "NOT NOT five = 5",
    "five = TRUE",
    "3 = TRUE",
    "five IS NULL",
    "5 IS NULL",
    "five NOT BETWEEN 1 AND 10",
    "five BETWEEN 10 AND missing",
    "five BETWEEN -1 AND -2",
    "missing = 3 AND word = 'y'",
    "word = 'y' AND missing = 3",
    "five = 6 AND word > 3",
    "missing <> missing2",
    "nan = 1.5",
    "zero = minus_zero",
    "missing CONTAINS 'x'",
    "missing NOT CONTAINS 'x'",
    "TAGS CONTAINS ''",
    "TAGS NOT CONTAINS ''",
    "5 CONTAINS '5'",
    "(five = 5) NOT CONTAINS 'x'",
    "NOT TAGS CONTAINS 'Tag'",
    "TRUE = -3",
]

UNKNOWN = [
    "missing = 3",
    "missing <> 3",
    "missing > 3",
    "3 > missing",
    "missing = 'x'",
    "missing = five",
    "missing = TRUE",
    "missing",
    "NULL",
    "NOT missing",
    "NOT (missing = 3)",
    "NOT NULL",
    "missing IN ('x')",
    "missing NOT IN ('x')",
    "missing BETWEEN 1 AND 3",
    "missing NOT BETWEEN 1 AND 3",
    "five BETWEEN missing AND 10",
    "missing AND TRUE",
    "NULL OR FALSE",
    "NULL AND NULL",
    "-five = 5",
    "-five > -6",
    "five BETWEEN -five AND 10",
]

NOT_COMPARABLE = [
    "half > 3",
    "half = 3",
    "word > 3",
    "word = 3",
    "long > 3",
    "huge > 1",
    "spaced = 5",
    "typed = 5",
    "under > 1.5",
    "inf > 1.5",
    "arabic = 5.0",
    "five > word",
    "TRUE = five",
    "(five = 5) = 'x'",
    "3 = 'x'",
    "half BETWEEN 1 AND 10",
    "word NOT BETWEEN 1 AND 3",
    # the failure decides, unless something before it has
    "word > 3 OR five = 5",
    "word > 3 AND five = 6",
    "NOT (word > 3)",
    "(word > 3) IS NULL",
    "five = 5 AND NOT word = 'y'",
    "-(word > 3) IS NULL",
]


@pytest.mark.parametrize("text", TRUE)
def test_these_are_true(text: str) -> None:
    expression = compile_expression(text)
    assert expression.value(PROPERTIES) is True
    assert expression.accepts(PROPERTIES)


@pytest.mark.parametrize("text", FALSE)
def test_these_are_false(text: str) -> None:
    expression = compile_expression(text)
    assert expression.value(PROPERTIES) is False
    assert not expression.accepts(PROPERTIES)


@pytest.mark.parametrize("text", UNKNOWN)
def test_these_are_unknown_and_drop_the_message(text: str) -> None:
    expression = compile_expression(text)
    assert expression.value(PROPERTIES) is None
    assert not expression.accepts(PROPERTIES)


@pytest.mark.parametrize("text", NOT_COMPARABLE)
def test_what_cannot_be_compared_drops_the_message_also_under_not(text: str) -> None:
    assert not compile_expression(text).accepts(PROPERTIES)
    assert not compile_expression(f"NOT ({text})").accepts(PROPERTIES)
    assert not compile_expression(f"({text}) OR TRUE").accepts(PROPERTIES)
    assert compile_expression(f"TRUE OR ({text})").accepts(PROPERTIES)


def test_a_number_of_more_than_64_characters_is_none_to_us() -> None:
    """The original reads it; nobody sends it, and it bounds what an expression costs."""
    expression = compile_expression("n > 1.5")
    assert expression.accepts({"n": "2." + "0" * 62})
    assert not expression.accepts({"n": "2." + "0" * 63})


def test_a_search_is_right_in_long_texts_of_one_letter() -> None:
    expression = compile_expression(f"text CONTAINS '{'a' * 40}b{'a' * 40}'")
    assert not expression.accepts({"text": "a" * 30_000})
    assert expression.accepts({"text": "a" * 20_000 + "b" + "a" * 9_000})
