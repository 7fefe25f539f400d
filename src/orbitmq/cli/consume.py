"""`orbitmq consume TOPIC --group G`: consume as a member of a group, and show each message.

In: a topic and a group. Out: a line a message, until Ctrl-C or a limit.

Rules:
1. It shares the queues with the other members of the group, and commits what it has shown.
2. A new group begins at the first message, or with --from latest at the end.
"""

import argparse

from orbitmq.cli.screen import Screen
from orbitmq.cli.shell import (
    add_reaching,
    client_options,
    namesrv_of,
    run_client,
    until_stopped,
)
from orbitmq.cli.shown_messages import show_message
from orbitmq.cli.tail import add_selecting, selector_of
from orbitmq.client.admin import Admin
from orbitmq.client.pull_consumer import PullConsumer
from orbitmq.wire.bodies_client import ConsumeFromWhere

BEGINNINGS = {
    "earliest": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "latest": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
}

EXAMPLES = """\
examples:
  orbitmq consume orders --group billing           one more member of billing
  orbitmq consume orders --group audit -n 10 --json
  orbitmq consume %DLQ%billing --group mending     dead letters
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    parser = subparsers.add_parser(
        "consume",
        help="consume messages as a member of a group",
        description="Consume messages as a member of a group, and show them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--group", metavar="GROUP", required=True, help="the consumer group")
    parser.add_argument(
        "--from",
        dest="begin",
        choices=BEGINNINGS,
        default="earliest",
        help="where a new group begins (earliest)",
    )
    add_selecting(parser)
    add_reaching(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    return run_client("orbitmq consume", until_stopped(_main(arguments)))


async def _main(arguments: argparse.Namespace) -> None:
    screen = Screen(is_json=arguments.json)
    selector = selector_of(arguments)
    options = client_options(arguments)
    async with Admin(namesrv_of(arguments), **options) as admin:
        await admin.topic_route(arguments.topic)  # raises for a topic that nobody has
    consumer = PullConsumer(
        namesrv_of(arguments),
        arguments.group,
        from_where=BEGINNINGS[arguments.begin],
        **options,
    )
    async with consumer:
        await consumer.subscribe(arguments.topic, selector)
        shown = 0
        async for message in consumer:
            show_message(screen, message)
            shown += 1
            if shown == arguments.limit:
                return
