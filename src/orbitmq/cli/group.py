"""`orbitmq group list|create|show|reset|delete`.

In: names and settings of consumer groups, and where they are to go on. Out: tables or JSON.

Rules:
1. Deleting asks on a terminal unless --yes; in a script it does not.
2. A broadcasting group keeps its offsets at its members, so no lag is shown: a number would alarm.
"""

import argparse
import asyncio

from orbitmq.cli.screen import RED, YELLOW, Screen
from orbitmq.cli.shell import NotDone, add_noun, add_verb, confirm, positive
from orbitmq.cli.times import HELP, place, span_text, time_text
from orbitmq.client.admin import Admin, GroupOptions
from orbitmq.client.admin_results import GroupMembers, GroupProgress, GroupSummary, ResetResult
from orbitmq.errors import MQError, SettingError
from orbitmq.wire.bodies_client import MessageModel, MessageQueue

EXAMPLES = """\
examples:
  orbitmq group list                               with members and lag
  orbitmq group show billing                       members, and the lag of each queue
  orbitmq group create billing --retries 3
  orbitmq group reset billing orders --to earliest
  orbitmq group reset billing orders --to -10m     again what came in the last ten minutes
  orbitmq group reset billing orders --offset 17 --broker broker-a --queue 0
  orbitmq group delete billing --yes
"""

ASKED_AT_A_TIME = 8


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    verbs = add_noun(subparsers, "group", "list, create, show, reset and delete groups", EXAMPLES)
    listing = add_verb(verbs, "group list", "list consumer groups with members and lag", _list)
    listing.add_argument("--all", action="store_true", help="include the system's")
    listing.add_argument("--names", action="store_true", help="only their names, one a line")
    _add_create(verbs)
    show = add_verb(verbs, "group show", "show members, and offsets and lag of each queue", _show)
    show.add_argument("group", metavar="GROUP")
    show.add_argument("--topic", metavar="TOPIC", help="only this topic")
    _add_reset(verbs)
    delete = add_verb(verbs, "group delete", "delete a group and its offsets", _delete)
    delete.add_argument("group", metavar="GROUP")
    delete.add_argument("--yes", action="store_true", help="do not ask")


def _add_create(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    create = add_verb(verbs, "group create", "create a group, or change an existing one", _create)
    create.add_argument("group", metavar="GROUP")
    create.add_argument(
        "--retries",
        type=positive,
        metavar="N",
        help="redeliveries before a message is a dead letter (16)",
    )
    create.add_argument(
        "--retry-queues", type=positive, metavar="N", help="queues of its retry topic (1)"
    )
    create.add_argument("--consume", choices=("yes", "no"), help="whether it may consume (yes)")
    create.add_argument("--broadcast", choices=("yes", "no"), help="whether it may broadcast (yes)")
    place = create.add_mutually_exclusive_group()
    place.add_argument(
        "--cluster",
        metavar="C",
        help="at all brokers of this cluster (needed if there are several)",
    )
    place.add_argument("--broker", metavar="B", help="at this broker only: name or host:port")


def _add_reset(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    reset = add_verb(verbs, "group reset", "move a group's offsets in a topic", _reset)
    reset.add_argument("group", metavar="GROUP")
    reset.add_argument("topic", metavar="TOPIC")
    where = reset.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", type=place, metavar="WHEN", help=f"earliest, latest, or {HELP}")
    where.add_argument("--offset", type=_offset, metavar="N", help="this offset, in every queue")
    reset.add_argument("--broker", metavar="B", help="with --offset: only at this broker")
    reset.add_argument("--queue", type=_offset, metavar="Q", help="with --broker: only this queue")
    reset.add_argument(
        "--only-back",
        action="store_true",
        help="with --to and a time: do not move queues forward",
    )


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


# --- list ---


async def _list(admin: Admin, screen: Screen, arguments: argparse.Namespace) -> None:
    names = await admin.groups(with_system=arguments.all)
    if arguments.names:
        _list_names(screen, names)
        return
    limit = asyncio.Semaphore(ASKED_AT_A_TIME)

    async def look(name: str) -> GroupSummary:
        async with limit:
            return await admin.group_summary(name)

    summaries = await asyncio.gather(*map(look, names))
    if screen.is_json:
        screen.value(summaries)
        return
    if not summaries:
        screen.hint("there are no groups yet; a consumer creates its group when it starts")
        return
    screen.table(
        ("GROUP", "MEMBERS", "MODEL", "LAG", "PER SECOND"),
        [
            (one.group, one.client_count, one.message_model.lower(), one.lag, one.tps)
            for one in summaries
        ],
    )


def _list_names(screen: Screen, names: list[str]) -> None:
    if screen.is_json:
        screen.value(names)
        return
    for name in names:
        screen.line(name)


# --- show ---


async def _show(admin: Admin, screen: Screen, arguments: argparse.Namespace) -> None:
    members = await admin.consumers(arguments.group)
    progress = await admin.progress(arguments.group, topic=arguments.topic)
    settings = await admin.group_config(arguments.group)
    differing = await _differing(admin, members)
    is_known = members.message_model != MessageModel.BROADCASTING.name
    if screen.is_json:
        screen.value(
            {
                "group": arguments.group,
                "lag": progress.lag if is_known else None,
                "tps": progress.tps,
                "consume_type": members.consume_type,
                "message_model": members.message_model,
                "clients": members.clients,
                "subscriptions": members.subscriptions,
                "differing_clients": differing,
                "queues": progress.queues if is_known else [],
                "settings": settings,
            }
        )
        return
    _show_members(screen, members)
    if differing:
        clients = ", ".join(differing)
        screen.line(screen.colour(f"subscriptions differ at {clients}", RED))
    screen.line()
    if is_known:
        _show_progress(screen, progress)
    else:
        screen.line("it broadcasts: members keep their own offsets, so brokers do not know its lag")


async def _differing(admin: Admin, members: GroupMembers) -> list[str]:
    """Return the members whose subscriptions differ from the first: a mistake of programs."""
    known: dict[str, frozenset[tuple[str, str]]] = {}
    for client in members.clients if len(members.clients) > 1 else ():
        try:
            info = await admin.running_info(members.group, client.client_id)
        except MQError:  # an old or busy client says nothing
            continue
        known[client.client_id] = frozenset(
            (entry.topic, entry.expression) for entry in info.subscriptions
        )
    usual = next(iter(known.values()), frozenset())
    return [client_id for client_id, subscriptions in known.items() if subscriptions != usual]


def _show_members(screen: Screen, members: GroupMembers) -> None:
    screen.heading(f"{members.group}: {len(members.clients)} members")
    if not members.clients:
        screen.line(screen.colour("nobody is online", YELLOW))
        return
    screen.table(
        ("CLIENT", "ADDRESS", "LANGUAGE", "VERSION"),
        [(one.client_id, one.address, one.language, str(one.version)) for one in members.clients],
    )
    screen.line()
    screen.table(
        ("TOPIC", "EXPRESSION", "KIND"),
        [(one.topic, one.expression, one.kind) for one in members.subscriptions],
    )


def _show_progress(screen: Screen, progress: GroupProgress) -> None:
    if not progress.queues:
        screen.line("it has no offsets yet")
        return
    screen.table(
        ("TOPIC", "BROKER", "QUEUE", "OFFSET", "END", "LAG", "LAST CONSUMED"),
        [
            (
                row.topic,
                row.broker,
                row.queue_id,
                row.offset,
                row.end_offset,
                row.lag,
                time_text(row.consumed_ms),
            )
            for row in progress.queues
        ],
    )
    screen.line()
    screen.facts({"lag": progress.lag, "consumed a second": progress.tps})


# --- create and delete ---


async def _create(admin: Admin, screen: Screen, arguments: argparse.Namespace) -> None:
    options: GroupOptions = {}
    if arguments.retries:
        options["retry_max_times"] = arguments.retries
    if arguments.retry_queues:
        options["retry_queue_count"] = arguments.retry_queues
    if arguments.consume:
        options["consume_enable"] = arguments.consume == "yes"
    if arguments.broadcast:
        options["broadcast_enable"] = arguments.broadcast == "yes"
    made = await admin.create_group(
        arguments.group, cluster=arguments.cluster, broker=arguments.broker, **options
    )
    if screen.is_json:
        screen.value(made)
        return
    screen.table(
        ("BROKER", "CONSUME", "BROADCAST", "RETRIES", "RETRY QUEUES"),
        [
            (
                one.broker,
                one.consume_enable,
                one.broadcast_enable,
                one.retry_max_times,
                one.retry_queue_count,
            )
            for one in made
        ],
    )


async def _delete(admin: Admin, screen: Screen, arguments: argparse.Namespace) -> None:
    group = arguments.group
    question = f"Delete group {group}, its offsets, retries and dead letters?"
    confirm(question, is_agreed=arguments.yes)
    if not await admin.delete_group(group):
        raise NotDone(f"there is no group {group}; see orbitmq group list")
    if screen.is_json:
        screen.value({"group": group, "deleted": True})
    else:
        screen.line(f"deleted group {group}")


# --- reset ---


async def _reset(admin: Admin, screen: Screen, arguments: argparse.Namespace) -> None:
    if arguments.queue is not None and not arguments.broker:
        raise SettingError("--queue needs --broker: each broker has a queue of that number")
    if arguments.broker and arguments.offset is None:
        raise SettingError("--broker needs --offset: a reset by time is for the whole topic")
    if arguments.only_back and not isinstance(arguments.to, int):
        raise SettingError("--only-back needs --to with a time: it says which queues stay")
    await admin.progress(
        arguments.group
    )  # raises for a mistyped name: a reset would make the group
    done = await _move(admin, arguments)
    if screen.is_json:
        screen.value(done)
        return
    screen.table(
        ("BROKER", "QUEUE", "GOES ON AT"),
        [(row.broker, row.queue_id, row.offset) for row in done.queues],
    )
    if done.is_running:
        screen.line(
            f"consumers of {done.group} are running; they follow within {span_text(15_000)}"
        )


async def _move(admin: Admin, arguments: argparse.Namespace) -> ResetResult:
    group, topic, to = arguments.group, arguments.topic, arguments.to
    if arguments.offset is not None:
        return await admin.reset_to_offset(group, topic, await _offsets(admin, arguments))
    if to == "latest":
        return await admin.reset_to_latest(group, topic)
    if to == "earliest":
        return await admin.reset_to_earliest(group, topic)
    return await admin.reset_to_time(group, topic, to, only_back=arguments.only_back)


async def _offsets(admin: Admin, arguments: argparse.Namespace) -> int | dict[MessageQueue, int]:
    """Return the one offset, or that of the queues at one broker."""
    if not arguments.broker:
        return int(arguments.offset)
    stats = await admin.topic_stats(arguments.topic)
    queues = [
        row.queue
        for row in stats.queues
        if row.broker == arguments.broker and arguments.queue in (None, row.queue_id)
    ]
    if not queues:
        raise NotDone(
            f"topic {arguments.topic} has no such queue at {arguments.broker}; see orbitmq topic "
            f"show {arguments.topic}"
        )
    return dict.fromkeys(queues, arguments.offset)
