"""Options of the sink: defaults that lose nothing, and errors that name option and remedy."""

import pytest

from orbitmq.errors import SettingError
from orbitmq.spark.sink_options import SinkOptions, sink_options


def read(**given: str) -> SinkOptions:
    return sink_options({"namesrvAddr": "localhost:9876", "topic": "orders", **given})


def test_a_sink_delivers_at_least_once_unless_told_otherwise() -> None:
    assert read().delivery == "at-least-once"
    assert not read().is_idempotent
    assert read(delivery="idempotent").is_idempotent
    assert read(idempotent="true").is_idempotent
    assert not read(idempotent="false").is_idempotent


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"delivery": "transactional"}, "transactional comes with a later version"),
        ({"transactional": "true"}, "transactional comes with a later version"),
        ({"delivery": "exactly-once"}, "one of at-least-once, idempotent, transactional"),
        ({"delivery": "idempotent", "idempotent": "false"}, "contradict"),
        ({"idempotent": "true", "transactional": "true"}, "contradict"),
        ({"writeId": "daily"}, "writeId means nothing without delivery=idempotent"),
        ({"batchSize": "0"}, "batchSize"),
        ({"batchBytes": "4194305"}, "batchBytes"),
        ({"queueSelector": "random"}, "one of auto, hash, roundRobin, column"),
        ({"producerGroup": "DEFAULT_PRODUCER"}, "producerGroup.*give this write its own"),
        ({"producerGroup": "a b"}, "producerGroup"),
        ({"topic": "no topic"}, "no topic"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "belongs to the system"),
        ({"compresOver": "5"}, "did you mean 'compressOver'"),
        ({"brokerAddr": "localhost:10911"}, "not both"),
    ],
)
def test_a_wrong_option_is_named_with_its_remedy(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        read(**given)


def test_a_cluster_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(SettingError, match="'namesrvAddr' is missing"):
        sink_options({"topic": "orders"})


def test_the_programs_name_servers_count_in_workers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "elsewhere:9876")
    assert sink_options({"topic": "orders"}).namesrv_addr == "elsewhere:9876"


def test_secrets_are_in_no_text_of_the_options() -> None:
    assert "hush" not in repr(read(accessKey="me", secretKey="hush"))
