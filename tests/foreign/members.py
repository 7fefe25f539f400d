"""Consumers that stand in for programs while a tool looks at them: online, and they answer.

In: an address, a group and its topic. Out: members that are connected for the length of a block,
say where they are (307) and keep what they are told (220).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from orbitmq.wire.command import Command, encode_command, reply_to
from tests.behaviour.consumers import BROKER_NAME, join
from tests.wire_client import WireClient

STAY_S = 120.0


class Member:
    """One connected consumer; its thread answers until the connection is closed."""

    def __init__(self, broker: str, client_id: str, group: str, topic: str) -> None:
        self.told: list[Command] = []
        self._client = WireClient(broker)
        self._client_id = client_id
        self._topic = topic
        join(self._client, client_id, group, topic)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        """End the connection and the thread."""
        self._client.shut_down()
        self._thread.join()
        self._client.close()

    def _serve(self) -> None:
        try:
            while True:
                command = self._client.receive(STAY_S)
                if command.code == 220:
                    self.told.append(command)
                elif command.code == 307 and not command.is_response:
                    reply = reply_to(command, body=self._running_info())
                    self._client.send_bytes(encode_command(reply))
        except (ConnectionError, TimeoutError):
            return

    def _running_info(self) -> bytes:
        """Return what a push consumer of 4.9.7 says that has every second queue."""
        parity = self._client_id.endswith("1")
        table = ",".join(
            json.dumps({"brokerName": BROKER_NAME, "queueId": queue_id, "topic": self._topic})
            + ":"
            + json.dumps({"commitOffset": 2, "lastPullTimestamp": 1, "lastConsumeTimestamp": 1})
            for queue_id in range(4)
            if queue_id % 2 == parity
        )
        subscription = {
            "topic": self._topic,
            "subString": "*",
            "subVersion": 1,
            "expressionType": "TAG",
            "classFilterMode": False,
            "codeSet": [],
            "tagsSet": [],
        }
        properties = {
            "PROP_CLIENT_VERSION": "V4_9_7",
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMEORDERLY": "false",
            "PROP_CONSUMER_START_TIMESTAMP": "1700000000000",
            "PROP_NAMESERVER_ADDR": "127.0.0.1:9876",
            "PROP_THREADPOOL_CORE_SIZE": "20",
        }
        rest = json.dumps({"properties": properties, "subscriptionSet": [subscription]})[1:]
        return b'{"mqTable":{%s},"statusTable":{},%s' % (table.encode(), rest.encode())


@contextmanager
def members(broker: str, group: str, topic: str, *client_ids: str) -> Iterator[list[Member]]:
    """Members of a group that are online in the block."""
    online: list[Member] = []
    try:
        for client_id in client_ids:
            online.append(Member(broker, client_id, group, topic))
        yield online
    finally:
        for member in online:
            member.close()
