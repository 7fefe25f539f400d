"""`orbitmq topic list|create|show|delete`.

In: names and settings of topics. Out: tables or JSON.
Rule: deleting asks on a terminal unless --yes; in a script it does not.
"""

import argparse

from orbitmq.cli.screen import Screen
from orbitmq.cli.shell import NotDone, add_noun, add_verb, confirm, pair, positive
from orbitmq.cli.times import time_text
from orbitmq.client.admin import Admin, TopicOptions
from orbitmq.client.admin_results import TopicInfo

EXAMPLES = """\
examples:
  orbitmq topic list                               topics of users; --all adds the system's
  orbitmq topic create orders --queues 16
  orbitmq topic create orders --perm r             change it: it can only be read
  orbitmq topic show orders                        brokers, queues, message counts, groups
  orbitmq topic delete orders --yes
"""

PERMS = {"rw": 6, "r": 4, "w": 2, "none": 0}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    verbs = add_noun(subparsers, "topic", "list, create, show and delete topics", EXAMPLES)
    listing = add_verb(verbs, "topic list", "list topics", _list)
    listing.add_argument("--all", action="store_true", help="include the system's")
    listing.add_argument("--cluster", metavar="C", help="only those of this cluster")
    _add_create(verbs)
    show = add_verb(
        verbs, "topic show", "show a topic's brokers, queues, message counts and groups", _show
    )
    show.add_argument("topic", metavar="TOPIC")
    delete = add_verb(verbs, "topic delete", "delete a topic with all its messages", _delete)
    delete.add_argument("topic", metavar="TOPIC")
    delete.add_argument("--cluster", metavar="C", help="only in this cluster (in all)")
    delete.add_argument("--yes", action="store_true", help="do not ask")


def _add_create(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    create = add_verb(verbs, "topic create", "create a topic, or change an existing one", _create)
    create.add_argument("topic", metavar="TOPIC")
    create.add_argument("--queues", type=positive, metavar="N", help="queues at each broker (8)")
    create.add_argument(
        "--read-queues", type=positive, metavar="N", help="queues to read from, if not N"
    )
    create.add_argument(
        "--write-queues", type=positive, metavar="N", help="queues to write to, if not N"
    )
    create.add_argument(
        "--perm", choices=PERMS, help="what is allowed: r is reading, w is writing (rw)"
    )
    create.add_argument(
        "--order",
        action="store_true",
        default=None,
        help="an ordered topic: its queues stay the same while a broker is down",
    )
    create.add_argument(
        "--attribute",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an attribute of RocketMQ 5, such as message.type=FIFO; may be repeated",
    )
    place = create.add_mutually_exclusive_group()
    place.add_argument(
        "--cluster",
        metavar="C",
        help="at all brokers of this cluster (needed if there are several)",
    )
    place.add_argument("--broker", metavar="B", help="at this broker only: name or host:port")


async def _list(admin: Admin, screen: Screen, arguments: argparse.Namespace) -> None:
    topics = await admin.topics(cluster=arguments.cluster, with_system=arguments.all)
    if screen.is_json:
        screen.value(topics)
        return
    for topic in topics:
        screen.line(topic)
    if not topics:
        screen.hint("there are no topics yet; create one: orbitmq topic create orders")


def _options(arguments: argparse.Namespace) -> TopicOptions:
    given = {
        "queue_count": arguments.queues,
        "read_queue_count": arguments.read_queues,
        "write_queue_count": arguments.write_queues,
        "perm": PERMS.get(arguments.perm or ""),
        "order": arguments.order,
        "attributes": dict(arguments.attribute) or None,
    }
    options: TopicOptions = {}
    for name, value in given.items():
        if value is not None:
            options[name] = value  # type: ignore[literal-required]  # names of TopicOptions
    return options


async def _create(admin: Admin, screen: Screen, arguments: argparse.Namespace) -> None:
    made = await admin.create_topic(
        arguments.topic,
        cluster=arguments.cluster,
        broker=arguments.broker,
        **_options(arguments),
    )
    if screen.is_json:
        screen.value(made)
    else:
        _show_settings(screen, made)


def _show_settings(screen: Screen, infos: list[TopicInfo]) -> None:
    screen.table(
        ("BROKER", "READ QUEUES", "WRITE QUEUES", "PERM", "ORDER", "ATTRIBUTES"),
        [
            (
                info.broker,
                info.read_queue_count,
                info.write_queue_count,
                info.perm_text,
                info.order,
                " ".join(f"{name}={value}" for name, value in sorted(info.attributes.items())),
            )
            for info in infos
        ],
    )


async def _show(admin: Admin, screen: Screen, arguments: argparse.Namespace) -> None:
    topic = arguments.topic
    settings = await admin.topic_config(topic)
    stats = await admin.topic_stats(topic)
    groups = await admin.topic_groups(topic)
    if screen.is_json:
        route = await admin.topic_route(topic)
        screen.value(
            {
                "topic": topic,
                "message_count": stats.message_count,
                "settings": settings,
                "brokers": route.brokers,
                "queues": stats.queues,
                "groups": groups,
            }
        )
        return
    screen.heading(f"{topic}: {stats.message_count:,} messages")
    _show_settings(screen, settings)
    screen.line()
    screen.table(
        ("BROKER", "QUEUE", "FIRST", "END", "MESSAGES", "LAST STORED"),
        [
            (
                row.broker,
                row.queue_id,
                row.min_offset,
                row.max_offset,
                row.max_offset - row.min_offset,
                time_text(row.stored_ms),
            )
            for row in stats.queues
        ],
    )
    screen.line()
    screen.facts({"groups": ", ".join(groups) or "none"})


async def _delete(admin: Admin, screen: Screen, arguments: argparse.Namespace) -> None:
    topic = arguments.topic
    confirm(f"Delete topic {topic} with all its messages?", is_agreed=arguments.yes)
    if not await admin.delete_topic(topic, cluster=arguments.cluster):
        raise NotDone(f"there is no topic {topic}; see orbitmq topic list")
    if screen.is_json:
        screen.value({"topic": topic, "deleted": True})
    else:
        screen.line(f"deleted topic {topic}")
