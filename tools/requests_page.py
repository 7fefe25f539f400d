"""Make docs/reference/requests.md from the tables of requests.

In: the tables of broker and name server, what clients answer to brokers. Out: the page, or with
--check exit code 1 when it is out of date.

    python -m tools.requests_page [--check]
"""

import sys
from pathlib import Path
from typing import Any

from orbitmq.broker import requests as broker
from orbitmq.client import on_broker
from orbitmq.namesrv import requests as namesrv
from orbitmq.net.requests import About, Kind, Request
from orbitmq.wire.codes import RequestCode
from tools.pages import write_or_check

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "requests.md"
HEAD = """\
# Requests

Made by `tools/requests_page.py` from the tables of requests; do not edit. Every request code of
RocketMQ 4.9.7 and 5.5.0: who serves it, or why it is refused.

- *asked by*: `client` (producers and consumers), `admin` (`mqadmin`, dashboards, our shell),
  `broker`.
- *right* and *about*: what access control will ask for, and where the request names the topic or
  group. Access control is not there yet: today everybody may ask everything. A topic `%RETRY%GROUP`
  stands for its group; to publish to it takes the right to subscribe with the group.
"""
SERVED = """
## Served by {}

| code | name | asked by | right | about |
|---|---|---|---|---|
"""
TO_CLIENTS = """
## Served by clients

Brokers ask these of their clients, over the connection that the client has made.

| code | name |
|---|---|
"""
REFUSED = """
## Refused

Answered with code 3, `request type N not supported`, and the reason.

| code | name | why |
|---|---|---|
"""
UNUSED = "the originals only name it, and answer with 3 as well"


def _about(about: About) -> str:
    return "cluster" if about.kind is Kind.CLUSTER else f"{about.kind.value} in {about.place}"


def _served(row: Request[Any]) -> str:
    asked_by = ", ".join(asker.value for asker in row.asked_by)
    about = ", ".join(map(_about, row.about))
    return f"| {row.code:d} | {row.code.name} | {asked_by} | {row.right.value} | {about} |\n"


def to_clients() -> list[RequestCode]:
    """Return what clients answer to brokers."""
    return [RequestCode(code) for code in on_broker.handlers_of({}, lambda _: None)]  # type: ignore[arg-type, return-value]  # nothing is spawned


def refused() -> dict[RequestCode, str]:
    """Return why each code is refused that nobody serves."""
    return {**broker.REFUSED, **namesrv.REFUSED, **dict.fromkeys(broker.UNUSED, UNUSED)}


def render_page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for who, table in (("brokers", broker.SERVED), ("name servers", namesrv.SERVED)):
        rows: list[Request[Any]] = sorted(table, key=lambda row: row.code)
        parts += [SERVED.format(who), *map(_served, rows)]
    parts += [TO_CLIENTS, *(f"| {code:d} | {code.name} |\n" for code in to_clients())]
    parts += [REFUSED]
    parts += [f"| {code:d} | {code.name} | {why} |\n" for code, why in sorted(refused().items())]
    return "".join(parts)


def main(arguments: list[str]) -> int:
    """Write the page, or check it."""
    return write_or_check(PAGE, render_page(), arguments, "requests_page")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
