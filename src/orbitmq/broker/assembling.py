"""Putting the parts of a broker together, and handing changed settings on to them.

In: tables, settings, the loop's turn. Out: a Context whose parts know each other.

Rule: steps of a turn's end are taken in the order they are made here: overload, then the writer.
"""

from orbitmq.broker.clients import ClientTable
from orbitmq.broker.cold_reads import ColdReads
from orbitmq.broker.context import Context, Tables
from orbitmq.broker.counts import Counts
from orbitmq.broker.flushing import Flusher
from orbitmq.broker.held_reads import HeldReads
from orbitmq.broker.hot_path import HotPath
from orbitmq.broker.keeping import Keeper
from orbitmq.broker.long_poll import LongPolls
from orbitmq.broker.overload import Overload
from orbitmq.broker.pulls import Pull, note_outcome
from orbitmq.broker.queue_follower import GrownQueues
from orbitmq.broker.stats import BrokerStats
from orbitmq.broker.store_options import (
    file_limits,
    is_pull_plain,
    retention_settings,
    set_core_limits,
)
from orbitmq.broker.turn_writer import TurnWriter, WriterParts
from orbitmq.config import BrokerSettings
from orbitmq.core import Gathered
from orbitmq.metrics import Registry
from orbitmq.net.later import Deadlines
from orbitmq.net.turn import Turn
from orbitmq.world.chance import Chance
from orbitmq.world.clock import Clock
from orbitmq.world.machine import memory_bytes
from orbitmq.world.threads import Threads

FOLLOWER_THREADS = 2
"""Read for all that follow queues: apart from pulls, which may have a thousand reads in line."""


def assemble(
    tables: Tables,
    settings: BrokerSettings,
    turn: Turn,
    registry: Registry,
    *,
    clock: Clock,
    chance: Chance,
) -> Context:
    """Return the parts of one broker; nothing runs yet."""
    store, core = tables.store, tables.core
    counts = Counts(core, store)

    def note_pull(pull: Pull, found: Gathered, took_s: float) -> None:
        note_outcome(context, pull, found, took_s)

    deadlines = Deadlines(turn.loop)
    flusher = Flusher(store, settings, clock)
    kept = (tables.topics, tables.groups, tables.offsets, tables.delays, tables.filters)
    keeper = Keeper([table.file for table in kept], flusher.finish_removals, clock, deadlines)
    overload = Overload(store, turn, clock, lambda: context.settings, registry)
    held_reads, on_grown = HeldReads(clock), GrownQueues()
    writer = TurnWriter(
        WriterParts(
            store=store,
            topics=tables.topics,
            flusher=flusher,
            keeper=keeper,
            overload=overload,
            deadlines=deadlines,
            on_seen=(held_reads.wake, on_grown.tell),
        ),
        turn,
        clock,
        registry,
    )
    context = Context(
        **tables._asdict(),
        settings=settings,
        clock=clock,
        chance=chance,
        boot_ms=clock.wall_ms(),
        counts=counts,
        stats=BrokerStats(
            counts,
            core,
            settings.broker_cluster_name,
            clock.monotonic_s(),
            has_queues=settings.enable_detail_stat,
        ),
        recent_bytes=memory_bytes() * settings.access_message_in_memory_max_ratio // 100,
        deadlines=deadlines,
        flusher=flusher,
        keeper=keeper,
        overload=overload,
        writer=writer,
        hot=HotPath(core, writer, overload, clock, registry),
        held_reads=held_reads,
        on_grown=on_grown,
        long_polls=LongPolls(core, clock, held_reads, note_pull),
        cold_reads=ColdReads(store, file_limits(settings), clock=clock, note=note_pull),
        follower_threads=Threads(FOLLOWER_THREADS, "follow"),
        clients=ClientTable(core),
    )
    writer.obey(settings)
    context.filters.on_change = context.clients.withdraw_filter
    overload.on_late = lambda: _leave_late_pulls(context)
    context.on_settings_change.append(lambda changed: _obey(context, changed))
    return context


async def close_parts(context: Context) -> None:
    """End what runs beside the loop."""
    await context.flusher.stop()
    context.cold_reads.close()
    context.follower_threads.close()
    context.deadlines.close()


def _obey(context: Context, settings: BrokerSettings) -> None:
    """Hand on what parts keep by themselves."""
    set_core_limits(context.core, settings)
    context.clients.withdraw_filters()
    context.topics.obey(settings)
    context.groups.is_auto_made = settings.auto_create_subscription_group
    context.cold_reads.limits = file_limits(settings)
    context.flusher.change_settings(settings)
    context.store.cleaner.retention.change(retention_settings(settings))
    context.writer.obey(settings)


def _leave_late_pulls(context: Context) -> None:
    """Have the hot core leave pulls alone that have waited too long."""
    is_late = bool(context.overload.late_pull)
    context.core.is_pull_plain = not is_late and is_pull_plain(context.settings)
