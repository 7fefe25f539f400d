"""Send three messages and receive them again: python examples/python/first_message.py [NAMESRV]."""

import os
import sys

from orbitmq import Message, Producer, PullConsumer

namesrv = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")

with Producer(namesrv, group="first_producer") as producer:
    for number in range(3):
        message = Message("FirstTopic", f"Hello OrbitMQ {number}".encode(), tag="hello")
        result = producer.send(message)
        print("sent", result.message_id)

with PullConsumer(namesrv, group="first_consumer") as consumer:
    queues = consumer.queues("FirstTopic")
    consumer.assign(queues)
    for queue in queues:
        consumer.seek_to_begin(queue)
    for number, received in enumerate(consumer, 1):
        print("received", received.body.decode())
        if number == 3:
            break
