"""`orbitmq cluster show`: all clusters and how their brokers are doing.

In: name servers. Out: a table or JSON.
Rule: a broker that does not answer is shown as such; the others are shown all the same.
"""

import argparse
import asyncio

from orbitmq.cli.screen import RED, Screen
from orbitmq.cli.shell import NotDone, add_noun, add_verb
from orbitmq.cli.times import span_text
from orbitmq.client.admin import Admin
from orbitmq.client.admin_results import BrokerRuntime
from orbitmq.errors import MQError
from orbitmq.world.clock import SystemClock

EXAMPLES = """\
examples:
  orbitmq cluster show
  orbitmq cluster show --json --namesrv "10.0.0.1:9876;10.0.0.2:9876"
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    verbs = add_noun(subparsers, "cluster", "show clusters and their brokers", EXAMPLES)
    add_verb(verbs, "cluster show", "show all clusters and how their brokers are doing", _show)


async def _show(admin: Admin, screen: Screen, _arguments: argparse.Namespace) -> None:
    members = [
        (cluster.name, broker.name, broker_id, address)
        for cluster in await admin.clusters()
        for broker in cluster.brokers
        for broker_id, address in broker.addresses.items()
    ]
    if not members:
        raise NotDone("no broker has registered; start one: orbitmq broker --namesrv host:port")
    found = await asyncio.gather(*(_runtime(admin, address) for *_, address in members))
    rows = list(zip(members, found, strict=True))
    if screen.is_json:
        screen.value([_value(member, runtime) for member, runtime in rows])
        return
    now_ms = SystemClock().wall_ms()
    screen.table(
        ("CLUSTER", "BROKER", "ID", "ADDRESS", "VERSION", "IN/S", "OUT/S", "TODAY", "DISK", "UP"),
        [(*member, *_figures(runtime, now_ms)) for member, runtime in rows],
    )
    for member, runtime in rows:
        if runtime is None:
            screen.line(screen.colour(f"{member[1]} at {member[3]} does not answer", RED))


async def _runtime(admin: Admin, address: str) -> BrokerRuntime | None:
    try:
        return await admin.broker_runtime(address)
    except MQError:
        return None


def _figures(runtime: BrokerRuntime | None, now_ms: int) -> tuple[object, ...]:
    if runtime is None:
        return (None,) * 6
    return (
        runtime.version,
        runtime.put_tps,
        runtime.get_tps,
        runtime.put_today,
        f"{runtime.disk_ratio:.0%}",
        span_text(now_ms - runtime.boot_ms),
    )


def _value(member: tuple[str, str, int, str], runtime: BrokerRuntime | None) -> dict[str, object]:
    cluster, broker, broker_id, address = member
    value: dict[str, object] = {
        "cluster": cluster,
        "broker": broker,
        "broker_id": broker_id,
        "address": address,
        "answers": runtime is not None,
    }
    if runtime is not None:
        value |= {
            "version": runtime.version,
            "put_tps": runtime.put_tps,
            "get_tps": runtime.get_tps,
            "put_today": runtime.put_today,
            "got_today": runtime.got_today,
            "disk_ratio": runtime.disk_ratio,
            "boot_ms": runtime.boot_ms,
        }
    return value
