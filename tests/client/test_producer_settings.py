"""What a producer is told, what it writes on the wire, and what a result looks like."""

import asyncio
from typing import get_type_hints

import msgspec
import pytest

from orbitmq.client.message import Message
from orbitmq.client.outgoing import properties_text
from orbitmq.client.producer import Producer, SendResult, SendStatus
from orbitmq.client.producer_settings import ProducerOptions, ProducerSettings
from orbitmq.client.settings import ClientOptions, ClientSettings
from orbitmq.errors import LocalProtocolError
from orbitmq.wire.bodies_client import MessageQueue
from orbitmq.wire.message_id import UniqueIds, decode_unique_id
from orbitmq.wire.properties import parse_properties
from orbitmq.world.clock import SystemClock, local_zone
from tests.client.producing import run
from tests.client.scripted import SILENT, TOPIC, scripted
from tests.net.running import until


def test_the_defaults_are_those_of_the_original() -> None:
    settings = ProducerSettings()
    assert settings.new_topic_queue_count == 4
    assert settings.send_timeout_s == 3.0
    assert settings.compress_from_bytes == 4096
    assert settings.compression_level == 5
    assert settings.retry_times_when_send_failed == 2
    assert settings.retry_times_when_submit_failed == 2
    assert settings.retry_another_broker_when_not_stored is False
    assert settings.avoids_slow_brokers is False
    assert settings.message_bytes_max == 4 * 1024 * 1024
    assert settings.route_interval_s == settings.heartbeat_interval_s == 30.0


@pytest.mark.parametrize(
    ("options", "settings", "positional"),
    [
        (ClientOptions, ClientSettings, {"namesrv"}),
        (ProducerOptions, ProducerSettings, {"namesrv", "group"}),
    ],
)
def test_every_setting_is_a_keyword_argument_of_the_same_type(
    options: type, settings: type[msgspec.Struct], positional: set[str]
) -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(settings)}
    keywords = get_type_hints(options)
    assert {name: kind for name, kind in fields.items() if name not in positional} == keywords


def test_a_send_request_has_the_fields_of_the_original() -> None:
    async def main() -> None:
        async with scripted([], []) as cluster:
            cluster.brokers = cluster.brokers[:1]
            cluster.namesrv.routes["NS%a|b"] = cluster.route(queues=1)
            (broker,) = cluster.brokers
            address = cluster.namesrv.address
            async with Producer(address, group="PG", namespace="NS") as producer:
                result = await producer.send(Message("a|b", b"x", tag='"quoted"\n', flag=5))
                await producer.send_batch([Message("a|b", b"x"), Message("a|b", b"y")])
                await producer.send_oneway(Message("a|b", b"z", waits_for_store=False))
                await until(lambda: len(broker.sends) == 3)
            single, batch, oneway = broker.sends
            assert (single.code, batch.code, oneway.code) == (310, 320, 310)
            assert (single.is_oneway, batch.is_oneway, oneway.is_oneway) == (False, False, True)
            assert (single.language, single.version) == ("PYTHON", 407)
            fields = dict(single.fields)
            assert abs(int(fields.pop("g")) - SystemClock().wall_ms()) < 60_000
            assert parse_properties(fields.pop("i")) == {
                "UNIQ_KEY": result.message_id,
                "TAGS": '"quoted"\n',
                "WAIT": "true",
                "INSTANCE_ID": "NS",
            }
            assert fields == {
                "a": "NS%PG",
                "b": "NS%a|b",
                "c": "TBW102",
                "d": "4",
                "e": "0",
                "f": "0",
                "h": "5",
                "j": "0",
                "k": "false",
                "m": "false",
            }
            assert batch.fields["m"] == "true"
            assert parse_properties(batch.fields["i"]) == {"WAIT": "true"}
            assert parse_properties(oneway.fields["i"])["WAIT"] == "false"

    run(main())


def test_avoidance_leaves_a_failed_broker_out_and_comes_back_to_no_other_way() -> None:
    async def main() -> None:
        async with (
            scripted([14] * 9, []) as cluster,
            Producer(cluster.namesrv.address, group="PG", avoids_slow_brokers=True) as producer,
        ):
            results = [await producer.send(Message(TOPIC, b"x")) for _ in range(12)]
            assert {result.queue.broker_name for result in results} == {"b1"}
            assert len(cluster.brokers[0].sends) == 1

    run(main())


def test_avoidance_measures_how_long_an_answer_takes() -> None:
    async def main() -> None:
        async with (
            scripted([SILENT], []) as cluster,
            Producer(cluster.namesrv.address, group="PG", avoids_slow_brokers=True) as producer,
        ):
            slow = cluster.brokers[0]
            futures = []
            while not slow.sends:
                futures.append(producer.submit(Message(TOPIC, b"x")))
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.6)
            assert slow.site is not None
            slow.site.connection().send_command(slow.answer(slow.sends[0], 0))
            await asyncio.gather(*futures)
            results = [await producer.send(Message(TOPIC, b"x")) for _ in range(8)]
            assert {result.queue.broker_name for result in results} == {"b1"}

    run(main())


def test_a_result_shows_status_ids_queue_and_offset_in_one_line() -> None:
    result = SendResult(SendStatus.SEND_OK, "UNIQUE", "OFFSET", MessageQueue("T", "b", 3), 17)
    text = str(result)
    assert "\n" not in text
    for part in ("SEND_OK", "UNIQUE", "OFFSET", "'T'", "'b'", "queue_id=3", "queue_offset=17"):
        assert part in text


def test_unique_ids_of_one_process_are_all_different_and_say_when() -> None:
    ids = UniqueIds("10.0.0.7", 4711, 99, local_zone())
    now_ms = 1_700_000_000_000
    made = [ids.next_id(now_ms + n // 1000) for n in range(50_000)]
    assert len(set(made)) == 50_000
    assert decode_unique_id(made[0])[:3] == ("10.0.0.7", 4711, 99)
    assert decode_unique_id(made[-1]).month_ms - decode_unique_id(made[0]).month_ms == 49


def test_properties_too_long_in_bytes_are_refused_even_if_they_are_few_characters() -> None:
    properties_text(Message("T", b"x", properties={"p": "ü" * 16_000}), "I" * 32)
    with pytest.raises(LocalProtocolError, match="limit 32767"):
        properties_text(Message("T", b"x", properties={"p": "ü" * 17_000}), "I" * 32)
    with pytest.raises(LocalProtocolError, match="half a character"):
        properties_text(Message("T", b"x", properties={"p": "\ud800" * 9_000}), "I" * 32)
