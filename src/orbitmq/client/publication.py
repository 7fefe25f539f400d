"""What a producer keeps of one topic: its queues, where they are, and half-written requests.

In: the topic's route. Out: queues, addresses, and header templates.

Rules:
1. A template is the JSON header of a send as the original's clients write it, code 310 (or 320 for
   a batch), with six places left: queue id, sysFlag, born time, flag, properties, opaque. All else
   is the same for every message of a topic and group.
2. Requests carry the topic with its namespace; queues are those the program sees, without it.
"""

import msgspec

from orbitmq.client.producer_settings import ProducerSettings
from orbitmq.client.queue_choice import Turns
from orbitmq.client.routes import MASTER_ID, Route
from orbitmq.client.settings import LANGUAGE
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import FLAG_ONEWAY, VERSION
from orbitmq.wire.names import TEMPLATE_TOPIC
from orbitmq.world.chance import Chance
from orbitmq.world.net import split_address

VIP_PORT_DISTANCE = 2
_BOOLS = {True: "true", False: "false"}


class Template(msgspec.Struct, frozen=True):
    """A request without what differs from message to message."""

    code: int
    flag: int
    text: bytes


class Publication:
    """One topic that a producer sends to."""

    def __init__(self, topic: str, public_topic: str, chance: Chance) -> None:
        self.topic = topic
        self.public_topic = public_topic
        self.turns = Turns(chance)
        self.queues: tuple[MessageQueue, ...] = ()
        self.addresses: dict[str, str] = {}
        """Where the master of each broker is."""
        self.properties_end = ""
        """What the namespace adds to every message's properties."""

    def write_templates(self, group: str, settings: ProducerSettings) -> None:
        """Prepare the three kinds of requests."""
        self.group, self.settings = group, settings
        self.single = self._template(RequestCode.SEND_MESSAGE_V2, 0)
        self.oneway = self._template(RequestCode.SEND_MESSAGE_V2, FLAG_ONEWAY)
        self.batch = self._template(RequestCode.SEND_BATCH_MESSAGE, 0)

    def _template(self, code: RequestCode, flag: int) -> Template:
        is_batch = _BOOLS[code is RequestCode.SEND_BATCH_MESSAGE]
        in_unit = _BOOLS[self.settings.unit_mode]
        queue_count = self.settings.new_topic_queue_count
        group, topic = (name.replace("%", "%%") for name in (self.group, self.topic))
        text = (
            f'{{"code":{code.value},"extFields":{{"a":"{group}","b":"{topic}",'
            f'"c":"{TEMPLATE_TOPIC}","d":"{queue_count}","e":"%d","f":"%d","g":"%d","h":"%d",'
            f'"i":%b,"j":"0","k":"{in_unit}","m":"{is_batch}"}},"flag":{flag},'
            f'"language":"{LANGUAGE}","opaque":%d,"serializeTypeCurrentRPC":"JSON",'
            f'"version":{VERSION}}}'
        )
        return Template(code.value, flag, text.encode())

    def take_route(self, route: Route, *, uses_vip_channel: bool) -> None:
        """Use a new route from now on."""
        self.queues = tuple(
            MessageQueue(self.public_topic, queue.broker_name, queue.queue_id)
            for queue in route.publish_queues
        )
        self.addresses = {
            broker.broker_name: vip_address(address) if uses_vip_channel else address
            for broker in route.data.broker_datas
            if (address := broker.broker_addrs.get(MASTER_ID)) is not None
        }


def vip_address(address: str) -> str:
    """Return the port two below, where the original's brokers take sends as well."""
    host, port = split_address(address)
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port - VIP_PORT_DISTANCE}"
