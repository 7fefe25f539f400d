"""Make docs/reference/spark-options.md from the option classes and the tables of columns.

In: the classes that sources and sinks read their options with, COLUMNS, SINK_COLUMNS. Out: the
page, or with --check exit code 1 when it is out of date.

    python -m tools.spark_page [--check]
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec

from orbitmq.arrow.columns import COLUMNS
from orbitmq.spark.connection_options import _CLIENT_SETTINGS, CLIENT_PREFIX, ConnectionOptions
from orbitmq.spark.log_options import LogOptions
from orbitmq.spark.options import Options, choices_of, is_for_streams, is_secret, option_fields
from orbitmq.spark.sink_options import SinkOptions
from orbitmq.spark.sink_schema import SINK_COLUMNS
from orbitmq.spark.topic_options import TopicOptions
from tools.pages import write_or_check

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "spark-options.md"
HEAD = """\
# Options and columns in Spark

Made by `tools/spark_page.py` from the classes that read the options; do not edit. Names are taken
in any case; a name that nobody knows is an error that names the nearest one. Options marked
*Streams only* have no effect in a batch, which checks their values and warns of them by name. How
to use them: [topics and logs in Spark](../guides/spark.md).
"""
SECTIONS: tuple[tuple[str, str, type[Options]], ...] = (
    (
        "Connection",
        "For `rocketmq`, read and write. Names that begin with `rocketmq.client.` set the client: "
        + ", ".join(f"`{CLIENT_PREFIX}{name}`" for name in _CLIENT_SETTINGS)
        + ".",
        ConnectionOptions,
    ),
    (
        "Reading topics",
        '`spark.read.format("rocketmq")`, `spark.readStream.format("rocketmq")`, and those above.',
        TopicOptions,
    ),
    (
        "Reading a store folder",
        '`spark.read.format("rocketmq_log")`, `spark.readStream.format("rocketmq_log")`.',
        LogOptions,
    ),
    (
        "Writing topics",
        '`df.write.format("rocketmq")`, `df.writeStream.format("rocketmq")`, and those at the top.',
        SinkOptions,
    ),
)


def render_page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for title, sentence, kind in SECTIONS:
        parts.append(f"\n## {title}\n\n{sentence}\n\n{_options_table(kind)}")
    parts.append(f"\n## Columns\n\n{_COLUMNS_HEAD}\n\n{_columns_table()}")
    parts.append(f"\n## Columns of a write\n\n{_SINK_HEAD}\n\n{_sink_table()}")
    return "".join(parts)


_COLUMNS_HEAD = """\
Of both formats. A schema of your own (`.schema("topic string, queueId int")`) gives these columns,
in this order, and nothing else is decoded. `bodyFormat=string` makes `body` a string,
`properties=string` gives the stored text."""
_SINK_HEAD = "Only `body` must be there. A column that is none of these is an error."


def _options_table(kind: type[Options]) -> str:
    shared = option_fields(ConnectionOptions) if kind is not ConnectionOptions else {}
    lines = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for name, field in option_fields(kind).items():
        if name not in shared:
            lines.append(
                f"| `{name}` | {_cell(type_told(field.type))} | {_default(field)} "
                f"| {_cell(_meaning(field))} |"
            )
    return "\n".join(lines) + "\n"


def _meaning(field: msgspec.structs.FieldInfo) -> str:
    found = next((meta.description for meta in _metas(field.type) if meta.description), "")
    if is_for_streams(field):
        found += " *Streams only.*"
    return f"{found} Never shown." if is_secret(field) else found


def _metas(kind: Any) -> Iterator[msgspec.Meta]:
    for each in get_args(kind):
        if isinstance(each, msgspec.Meta):
            yield each
        else:
            yield from _metas(each)


def type_told(kind: Any) -> str:
    """Return an option's type in words: what one may write."""
    words = choices_of(kind)
    if words:
        return ", ".join(f"`{word}`" for word in words)
    kinds = set(_plain_types(kind)) - {type(None)}
    (plain,) = kinds
    named = {bool: "true or false", int: "whole number", float: "number", str: "text"}[plain]
    least = [meta.ge for meta in _metas(kind) if meta.ge is not None]
    most = [meta.le for meta in _metas(kind) if meta.le is not None]
    named += "".join(f", {bound:,} at least" for bound in least[:1])
    return named + "".join(f", {bound:,} at most" for bound in most[:1])


def _plain_types(kind: Any) -> Iterator[Any]:
    parts = [each for each in get_args(kind) if not isinstance(each, msgspec.Meta)]
    if not parts:
        yield kind
    for each in parts:
        yield from _plain_types(each)


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default in ("", None):
        return ""
    shown = str(field.default)
    return f"`{shown.lower() if isinstance(field.default, bool) else shown}`"


def _columns_table() -> str:
    lines = ["| column | type | null | what it holds |", "|---|---|---|---|"]
    for one in COLUMNS:
        null = "yes" if one.is_nullable else "no"
        lines.append(f"| `{one.name}` | {one.ddl} | {null} | {_cell(one.meaning)} |")
    return "\n".join(lines) + "\n"


def _sink_table() -> str:
    lines = ["| column | types | what it means |", "|---|---|---|"]
    for one in SINK_COLUMNS:
        lines.append(f"| `{one.name}` | {' or '.join(one.types)} | {_cell(one.meaning)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def main(arguments: list[str]) -> int:
    """Write the page, or check it."""
    return write_or_check(PAGE, render_page(), arguments, "spark_page")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
