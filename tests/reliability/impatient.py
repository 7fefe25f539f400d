"""The command `orbitmq` with a server that loses patience within two seconds.

In: the arguments of `orbitmq`. Out: the same program; only the times that a peer may take for its
first frame, for a begun frame and for reading its answers are short, so that a test of what happens
after them need not wait for minutes. They are no settings: nobody would want others. A test that
needs more of them says so with ORBITMQ_TEST_PATIENCE_S.
"""

import os
import sys

import msgspec

from orbitmq.broker import broker
from orbitmq.cli.main import main
from orbitmq.config import ServerSettings
from orbitmq.net.limits import Limits
from orbitmq.net.serving import limits_from

PATIENCE_S = float(os.environ.get("ORBITMQ_TEST_PATIENCE_S", "1.5"))


def _short_limits(settings: ServerSettings) -> Limits:
    return msgspec.structs.replace(
        limits_from(settings),
        first_frame_s=PATIENCE_S,
        begun_frame_s=PATIENCE_S,
        blocked_s=PATIENCE_S,
    )


if __name__ == "__main__":
    vars(broker)["limits_from"] = _short_limits
    sys.exit(main())
