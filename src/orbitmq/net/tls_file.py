"""The TLS settings that stand in a file of their own (tls.config.file).

In: the path and whose settings they are. Out: the file's keys that count, and notes for the log.

Rules:
1. As in the original the file has the last word, and has it for `KEYS` only: whether TLS is spoken
   at all (tls.server.mode, tls.enable) is said elsewhere.
2. A file that is named must be there: without it a port would be plain that was meant not to be.
   The original goes on without.
"""

from pathlib import Path

from orbitmq.config import Settings, facts_of, file_text, parse_properties
from orbitmq.errors import SettingError
from orbitmq.world.files import Files

KEYS = (
    "tls.test.mode.enable",
    "tls.server.need.client.auth",
    "tls.server.keyPath",
    "tls.server.keyPassword",
    "tls.server.certPath",
    "tls.server.authClient",
    "tls.server.trustCertPath",
    "tls.client.keyPath",
    "tls.client.keyPassword",
    "tls.client.certPath",
    "tls.client.authServer",
    "tls.client.trustCertPath",
)


def read_tls_file(
    files: Files, path: str, settings_type: type[Settings]
) -> tuple[dict[str, str], list[str]]:
    """What the file sets of these settings, and what it says in vain; raises SettingError."""
    if not path:
        return {}, []
    try:
        data = files.read(Path(path))
    except OSError as error:
        raise SettingError(f"tls.config.file={path} cannot be read: {error.strerror}") from None
    if data is None:
        raise SettingError(f"tls.config.file={path} does not exist; name a file, or leave it out")
    try:
        found = parse_properties(file_text(data)[0])
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None
    known = {*(one.key for one in facts_of(settings_type)), *settings_type.without_effect}
    notes = [
        f"{key} is not read from {path}; set it with -c or -D" for key in found if key not in KEYS
    ]
    return {key: found[key] for key in KEYS if key in found and key in known}, notes
