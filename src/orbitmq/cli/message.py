"""`orbitmq message show|search`: look for stored messages.

In: a message id, or a topic and a key. Out: what is stored, and which groups have consumed it.
Rule: `show --body` writes the body and nothing else, byte for byte.
"""

import argparse
import sys

from orbitmq.cli.screen import Screen
from orbitmq.cli.shell import NotDone, add_noun, add_verb, positive
from orbitmq.cli.shown_messages import body_text, message_value, own_properties, show_message
from orbitmq.cli.times import HELP, time_ms, time_text
from orbitmq.client.admin import Admin
from orbitmq.client.admin_messages import KEY_COUNT_MAX, TIME_MS_MAX
from orbitmq.client.message import ReceivedMessage

EXAMPLES = """\
examples:
  orbitmq message show 7F00000100002A9F0000000000000000     an offset id
  orbitmq message show 7F0000013A2C18B4AAC2033B39A40000 --topic orders
  orbitmq message show 7F00000100002A9F0000000000000000 --body > body.json
  orbitmq message search orders --key 42 --from -2d
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    verbs = add_noun(subparsers, "message", "show a message, search for messages", EXAMPLES)
    show = add_verb(
        verbs, "message show", "show one message and which groups have consumed it", _show
    )
    show.add_argument("id", metavar="ID", help="an offset id, or with --topic a unique id")
    show.add_argument("--topic", metavar="TOPIC", help="where to look for a unique id")
    show.add_argument("--body", action="store_true", help="write its body and nothing else")
    search = add_verb(verbs, "message search", "find the messages of a topic by a key", _search)
    search.add_argument("topic", metavar="TOPIC")
    search.add_argument("--key", metavar="K", required=True, help="one of its keys")
    search.add_argument(
        "--from", dest="begin_ms", type=time_ms, default=0, metavar="WHEN", help=HELP
    )
    search.add_argument(
        "--to", dest="end_ms", type=time_ms, default=TIME_MS_MAX, metavar="WHEN", help=HELP
    )
    search.add_argument(
        "--limit", type=positive, default=KEY_COUNT_MAX, metavar="N", help="the newest N (64)"
    )


async def _show(admin: Admin, screen: Screen, arguments: argparse.Namespace) -> None:
    message = await admin.message(arguments.id, topic=arguments.topic)
    if arguments.body:
        sys.stdout.buffer.write(message.body)
        sys.stdout.buffer.flush()
        return
    tracks = await admin.tracks(message)
    if screen.is_json:
        screen.value({**message_value(message), "groups": tracks})
        return
    screen.facts(_facts(message))
    screen.line()
    if not tracks:
        screen.line("no group consumes its topic")
        return
    screen.table(
        ("GROUP", "STATE", "REMARK"), [(one.group, one.state, one.remark) for one in tracks]
    )


def _facts(message: ReceivedMessage) -> dict[str, object]:
    queue = message.queue
    properties = own_properties(message)
    return {
        "message id": message.message_id,
        "offset id": message.offset_id,
        "topic": message.topic,
        "queue": f"{queue.broker_name}/{queue.queue_id} at offset {message.queue_offset}",
        "tag": message.tag,
        "keys": " ".join(message.keys),
        "properties": " ".join(f"{name}={value}" for name, value in properties.items()),
        "born": f"{time_text(message.born_ms)} at {message.born_host}",
        "stored": f"{time_text(message.store_ms)} at {message.store_host}",
        "failed deliveries": message.reconsume_times,
        "body": body_text(message.body),
    }


async def _search(admin: Admin, screen: Screen, arguments: argparse.Namespace) -> None:
    found = await admin.messages_by_key(
        arguments.topic,
        arguments.key,
        begin_ms=arguments.begin_ms,
        end_ms=arguments.end_ms,
        count_max=arguments.limit,
    )
    if screen.is_json:
        screen.value([message_value(message) for message in found])
        return
    if not found:
        raise NotDone(
            f"topic {arguments.topic} has no message with key {arguments.key} in that time"
        )
    for message in found:
        show_message(screen, message)
