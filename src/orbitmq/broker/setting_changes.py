"""Settings that are changed over the network: checked, saved, then in force.

In: requests 25, with properties text. Out: their answers, the settings in force, and the file that
has the changes at the next start.

Rules:
1. All keys of a request are changed, or none: see `net.settings_changes` for what is refused.
2. The file of -c gets the changes, as in the original, and keeps its other lines. Without -c it is
   broker.properties in the store's config folder, which is the weakest source at the next start.
3. A change is in force once it is on the disk.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from orbitmq.broker.store_options import check_settings
from orbitmq.config import BrokerSettings, edit_properties, file_text, parse_properties, refusals
from orbitmq.errors import RequestFailed, SettingError
from orbitmq.metrics import Registry
from orbitmq.net.dispatch import Failures
from orbitmq.net.later import Later
from orbitmq.net.saving import Save, Saver, read_file
from orbitmq.net.settings_changes import read_changes_of
from orbitmq.wire.bodies_namesrv import DataVersion
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.world.clock import Clock
from orbitmq.world.files import Files

CHANGES_FILE = "broker.properties"
"""In the store's config folder, beside the tables."""


class SettingChanges:
    """Changes the settings of one broker; `version` counts the changes since the start."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        apply: Callable[[Mapping[str, str]], None],
        files: Files,
        path: Path,
        *,
        clock: Clock,
        registry: Registry,
    ) -> None:
        """`settings` gives those in force, `apply` changes them, `path` is the file (rule 2)."""
        self._settings = settings
        self._apply = apply
        self._files = files
        self._path = path
        self._clock = clock
        self._saver = Saver(files, path, Failures(registry))
        self.version = DataVersion(timestamp_ms=clock.wall_ms())

    def change(self, request: Command) -> Later:
        """Make the changes of a request 25 and answer it when they are in force."""
        return self._saver.save(request, lambda: self._prepare(request.body))

    async def finish(self) -> None:
        """Return when no change is under way any more."""
        await self._saver.finish()

    def _prepare(self, text: bytes) -> Save | None:
        settings, wanted = read_changes_of(self._settings(), text)
        if not wanted:
            return None
        try:
            check_settings(settings)
        except SettingError as error:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return Save(partial(self._contents, wanted), partial(self._commit, wanted))

    def _contents(self, wanted: Mapping[str, str]) -> bytes:
        """Return the file with the changes; runs in a thread."""
        try:
            text, encoding = file_text(self._files.read(self._path) or b"")
            return edit_properties(text, wanted).encode(encoding)
        except (OSError, SettingError) as error:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR, f"{self._path} cannot be changed: {error}; mend the file"
            ) from None

    def _commit(self, wanted: Mapping[str, str]) -> None:
        self._apply(wanted)
        self.version = DataVersion(
            counter=self.version.counter + 1, timestamp_ms=self._clock.wall_ms()
        )


def read_kept_changes(files: Files, config_folder: Path) -> dict[str, str]:
    """The changes that earlier runs kept; raises SettingError when the file cannot be used."""
    path = config_folder / CHANGES_FILE
    data = read_file(files, path)
    try:
        changes = parse_properties(data or b"")
        refused = refusals(BrokerSettings, changes)
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None
    if refused:
        raise SettingError(f"{path}: {'; '.join(refused)}; remove the line or the file")
    return changes
