"""A hostile sender beside the load of the kill loop: what has damaged originals, all the time.

In: where the broker is. Out: sends with bits and properties that only a broker may set, and pulls
whose answers are never read. Run as `python -m tests.reliability.load_hostile`; it ends by SIGTERM.

Rules:
1. Its messages are in a topic of their own, so the audit of the others says what it did to them.
2. A broker that stores a property that is reserved for brokers ends this process with an error.
"""

from __future__ import annotations

import itertools
import sys

from tests.behaviour.requests import pull_request, send_request
from tests.reliability.load_client import GONE, PLAIN, Client, client_arguments
from tests.wire_client import WireClient

HOSTILE_TOPIC = "T6_Hostile"
HOST_BITS = (0x10, 0x20, 0x30)
"""IPv6 hosts of sender, of store, of both: records with them and IPv4 hosts are malformed."""
RESERVED = f"INNER_MULTI_DISPATCH\x01{PLAIN},%LMQ%{PLAIN}\x02INNER_MULTI_QUEUE_OFFSET\x010,0"
MESSAGE_ILLEGAL = 13
UNREAD_COUNT = 200
PAUSE_S = 0.05


class Hostile(Client):
    """Does harm until it is to end."""

    def run(self) -> None:
        """Try over one connection after the other."""
        while (client := self.connect()) is not None:
            with client:
                try:
                    self._harm(client)
                except GONE:
                    continue

    def _harm(self, client: WireClient) -> None:
        for number in itertools.count():
            if self.is_ending:
                return
            bits = HOST_BITS[number % len(HOST_BITS)]
            client.call(send_request(HOSTILE_TOPIC, b"malformed" * 20, f=bits))
            answer = client.call(send_request(HOSTILE_TOPIC, b"reserved", i=RESERVED))
            assert answer.code in (MESSAGE_ILLEGAL, 2, 14), f"it was taken: {answer}"
            with WireClient(self.address) as unread:
                for _ in range(UNREAD_COUNT):
                    unread.send(pull_request(PLAIN, "T6_Unread", 0, maxMsgNums=1000))
                self.pause(PAUSE_S)


if __name__ == "__main__":
    Hostile(client_arguments(sys.argv[1:])).run()
