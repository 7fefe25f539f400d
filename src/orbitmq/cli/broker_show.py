"""`orbitmq broker show NAME`: how one broker is doing, and its settings.

In: a broker's name or address. Out: facts and figures, or JSON.
Rule: it stands beside the flags of `orbitmq broker`, which runs one.
"""

import argparse

from orbitmq.cli.screen import Screen
from orbitmq.cli.shell import add_verb
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


def add_show(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    show = add_verb(verbs, "broker show", "show how a broker is doing", _show, EXAMPLES)
    show.add_argument("broker", metavar="BROKER", help="name, or host:port")
    show.add_argument("--settings", action="store_true", help="its settings as well")
    show.add_argument("--all", action="store_true", help="everything it tells of itself")


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


def _facts(runtime: BrokerRuntime) -> dict[str, object]:
    up_ms = SystemClock().wall_ms() - runtime.boot_ms
    role = "master" if runtime.broker_id == 0 else f"slave {runtime.broker_id}"
    return {
        "cluster": runtime.cluster,
        "role": role,
        "version": runtime.version,
        "up for": f"{span_text(up_ms)}, since {time_text(runtime.boot_ms)}",
        "stored a second": runtime.put_tps,
        "given out a second": runtime.get_tps,
        "stored today": runtime.put_today,
        "given out today": runtime.got_today,
        "stored yesterday": runtime.put_yesterday,
        "disk used": f"{runtime.disk_ratio:.0%}",
        "oldest message": time_text(runtime.earliest_ms),
    }
