"""Send 1000 greetings to TopicTest: python examples/python/quickstart_producer.py [NAMESRV]."""

import sys
import time

from orbitmq import Message, Producer
from orbitmq.errors import MQError

namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"

with Producer(namesrv, group="please_rename_unique_group_name") as producer:
    for number in range(1000):
        message = Message("TopicTest", f"Hello RocketMQ {number}".encode(), tag="TagA")
        try:
            print(producer.send(message), flush=True)
        except MQError as error:
            print(error, file=sys.stderr, flush=True)
            time.sleep(1)
