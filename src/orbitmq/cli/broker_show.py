"""`orbitmq broker show|set BROKER`: how a running broker is doing, and its settings.

In: a broker's name or address, settings to change. Out: facts and figures, or JSON.
Rule: the verbs stand beside the flags of `orbitmq broker`, which runs one.
"""

import argparse

from orbitmq.cli.screen import Screen
from orbitmq.cli.shell import add_verb, pair
from orbitmq.cli.times import span_text, time_text
from orbitmq.client.admin import Admin
from orbitmq.client.admin_results import BrokerRuntime
from orbitmq.world.clock import SystemClock

EXAMPLES = """\
examples:
  orbitmq broker show broker-a
  orbitmq broker show 10.0.0.7:10911 --settings
  orbitmq broker show broker-a --json
"""

SET_EXAMPLES = """\
examples:
  orbitmq broker set broker-a fileReservedTime=48
  orbitmq broker set 10.0.0.7:10911 enablePropertyFilter=true autoCreateTopicEnable=false
"""


def add_verbs(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verbs."""
    show = add_verb(verbs, "broker show", "show how a broker is doing", _show, EXAMPLES)
    show.add_argument("broker", metavar="BROKER", help="name, or host:port")
    show.add_argument("--settings", action="store_true", help="show its settings, too")
    show.add_argument("--all", action="store_true", help="show all runtime figures")
    purpose = "change settings of a running broker, for good"
    changing = add_verb(verbs, "broker set", purpose, _set, SET_EXAMPLES)
    changing.add_argument("broker", metavar="BROKER", help="name, or host:port")
    changing.add_argument(
        "changes", type=pair, nargs="+", metavar="KEY=VALUE", help="a key of broker.conf"
    )


async def _show(admin: Admin, screen: Screen, arguments: argparse.Namespace) -> None:
    runtime = await admin.broker_runtime(arguments.broker)
    settings = await admin.broker_settings(arguments.broker) if arguments.settings else None
    if screen.is_json:
        screen.value({"runtime": runtime, "settings": settings})
        return
    screen.heading(f"{runtime.name} at {runtime.address}")
    screen.facts(_facts(runtime))
    if arguments.all:
        screen.line()
        screen.facts(runtime.table)
    if settings is not None:
        screen.line()
        screen.facts(settings)


async def _set(admin: Admin, screen: Screen, arguments: argparse.Namespace) -> None:
    changes = dict(arguments.changes)
    await admin.update_broker_settings(changes, broker=arguments.broker)
    settings = await admin.broker_settings(arguments.broker)
    changed = {key: settings.get(key, "") for key in changes}
    if screen.is_json:
        screen.value(changed)
    else:
        screen.facts(changed)


def _facts(runtime: BrokerRuntime) -> dict[str, object]:
    up_ms = SystemClock().wall_ms() - runtime.boot_ms
    role = "master" if runtime.broker_id == 0 else f"slave {runtime.broker_id}"
    return {
        "cluster": runtime.cluster,
        "role": role,
        "version": runtime.version,
        "up for": f"{span_text(up_ms)}, since {time_text(runtime.boot_ms)}",
        "stored a second": runtime.put_tps,
        "delivered a second": runtime.get_tps,
        "stored today": runtime.put_today,
        "delivered today": runtime.got_today,
        "stored yesterday": runtime.put_yesterday,
        "disk used": f"{runtime.disk_ratio:.0%}",
        "oldest message": time_text(runtime.earliest_ms),
    }
