"""Print what comes to TopicTest: python examples/python/quickstart_consumer.py [NAMESRV]."""

import sys
import threading

from orbitmq import ConsumeFromWhere, PushConsumer, ReceivedMessage

namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


def on_message(message: ReceivedMessage) -> None:
    """Take a message; that it returns means that the message is consumed."""
    name, text = threading.current_thread().name, message.body.decode()
    # One write for a line: handlers run in many threads at a time.
    sys.stdout.write(f"{name} Receive New Messages: {message.message_id} {text}\n")
    sys.stdout.flush()


consumer = PushConsumer(
    namesrv,
    "please_rename_unique_group_name_4",
    on_message,
    subscriptions={"TopicTest": "*"},
    from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
)
with consumer:
    print("Consumer Started.", flush=True)
    threading.Event().wait()  # until Ctrl-C
