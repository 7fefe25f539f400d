"""Opening the broker's store: it may take long, says how far it is, and can be given up.

In: settings, a folder, the machine; from another thread, that it is to stop. Out: the open store or
StoreError.

Rules:
1. It touches nothing but the store's files and its own state, so it may run in any thread.
2. Giving up is a failure like any other while opening: what recovery did so far it would do again.
"""

import logging
from pathlib import Path

from orbitmq.broker.store_options import retention_settings, store_options
from orbitmq.config.broker import BrokerSettings
from orbitmq.errors import StoreError
from orbitmq.store.opening import Outside
from orbitmq.store.store import Store
from orbitmq.world.clock import Clock, SystemClock
from orbitmq.world.files import Files, SystemFiles
from orbitmq.world.machine import boot_id

log = logging.getLogger(__name__)

PROGRESS_S = 2.0
_MIB = 1_048_576


def this_machine(files: Files | None = None, clock: Clock | None = None) -> Outside:
    """Return the machine we run on, with other files or another clock where they are given."""
    return Outside(files or SystemFiles(), clock or SystemClock(), boot_id())


class OpeningStopped(StoreError):
    """The store was not opened, because somebody asked for that."""


class StoreOpening:
    """One attempt to open a store."""

    def __init__(
        self, settings: BrokerSettings, folder: Path, outside: Outside | None = None
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._outside = outside or this_machine()
        self._clock = self._outside.clock
        self._reported_s = self._clock.monotonic_s()
        self._is_stopped = False

    def run(self) -> Store:
        """Open the store; raises StoreError when it cannot be opened or `stop` was called."""
        begun_s = self._clock.monotonic_s()
        store = Store(
            self._outside,
            self._folder,
            store_options(self._settings),
            retention_settings(self._settings),
            self._tell,
        )
        if not store.was_clean:
            log.warning(
                "the last run did not close %s: recovery has checked it in %.1f s, %d findings",
                self._folder,
                self._clock.monotonic_s() - begun_s,
                len(store.findings),
            )
        for finding in store.findings:
            log.warning("%s", finding.text)
        log.info(
            "the log of %s goes from %d to %d",
            self._folder,
            store.first_offset,
            store.tail.end_offset,
        )
        return store

    def stop(self) -> None:
        """Have `run` give up soon; from any thread."""
        self._is_stopped = True

    def _tell(self, done: int, most: int) -> None:
        if self._is_stopped:
            raise OpeningStopped(
                f"opening {self._folder} was stopped; nothing is lost, the next start reads again"
            )
        now_s = self._clock.monotonic_s()
        if now_s - self._reported_s >= PROGRESS_S:
            self._reported_s = now_s
            log.info("reading back the log: %d of at most %d MiB", done // _MIB, most // _MIB)
