"""Mistakes of users that a type checker must find: a line each, and the kind of its error."""

WRONG = {
    "orbitmq.Producer('a:1', gruop='g')": "call-arg",
    "orbitmq.Producer('a:1', send_timeout_s='3')": "arg-type",
    "orbitmq.Producer('a:1').send('text')": "arg-type",
    "orbitmq.PushConsumer('a:1', 'g', is_orderly='yes')": "arg-type",
    "orbitmq.PushConsumer('a:1', 'g', lambda: None)": "arg-type",
    "orbitmq.PullConsumer('a:1', 'g').poll(timeout='1')": "arg-type",
    "orbitmq.Admin('a:1').topic_stats(1)": "arg-type",
    "orbitmq.Nothing": "attr-defined",
    "aio.Message('T')": "call-arg",
    "aio.Selector.tags(1)": "arg-type",
    "errors.RouteNotFound('T', [], 'why', 'what').nothing": "attr-defined",
}

LINES = "\n".join(["import orbitmq", "from orbitmq import aio, errors", *WRONG]) + "\n"
"""The program of mistakes."""
FIRST = 3


def found_in(said: list[str]) -> dict[int, str]:
    """Return the kinds of errors that mypy names, by line."""
    return {
        int(line.split(":")[1]): line.rpartition("[")[2].rstrip("]")
        for line in said
        if ": error:" in line
    }


def missed(found: dict[int, str]) -> list[str]:
    """Return what should have been said of the mistakes and was not."""
    wanted = dict(enumerate(WRONG.items(), FIRST))
    return [
        f"mypy says {found.get(number)} of `{line}` instead of {kind}"
        for number, (line, kind) in wanted.items()
        if found.get(number) != kind
    ]
