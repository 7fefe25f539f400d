"""Settings that somebody asks to change over the network: which may be, and what they become.

In: the settings in force and the properties text of a request (25 at a broker, 318 at a name
server). Out: the settings with the changes, or why there are none.

Rules:
1. Only settings marked changeable can be changed; one other key refuses the whole request (16).
2. One value that cannot be used refuses the whole request, too (1). Nothing is changed here.
"""

from typing import TypeVar

from orbitmq.config import Settings, change_settings, parse_properties, refusals
from orbitmq.errors import RequestFailed, SettingError
from orbitmq.wire.codes import ResponseCode

S = TypeVar("S", bound=Settings)


def read_changes_of(settings: S, text: bytes) -> tuple[S, dict[str, str]]:
    """Return the settings that `text` leads to and the keys it changes; raises RequestFailed."""
    try:
        wanted = parse_properties(text)
        refused = refusals(type(settings), wanted)
        if refused:
            raise RequestFailed(
                ResponseCode.NO_PERMISSION, "Can not update config: " + "; ".join(refused)
            )
        return change_settings(settings, wanted), wanted
    except SettingError as error:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, str(error)) from None
