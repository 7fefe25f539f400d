"""Deleted topics over restarts and kills of a whole broker."""

import shutil
from pathlib import Path

import pytest

from orbitmq.wire.record import scan_records
from tests.behaviour.requests import fill, pull_request, send_request
from tests.behaviour.test_topics import configs, make
from tests.foreign.judged import up_command
from tests.foreign.running import running
from tests.wire_client import WireClient

DELETE_TOPIC = 215


def bodies(client: WireClient, topic: str) -> list[bytes]:
    """Return what a consumer gets of queue 0."""
    answer = client.call(pull_request(topic, "G", 0))
    return [record.body for record in scan_records(answer.body)] if answer.code == 0 else []


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_deleted_topic_stays_deleted_and_a_new_life_stays(
    tmp_path: Path, *, is_killed: bool
) -> None:
    with running(up_command(tmp_path / "data")) as ready, WireClient(ready["broker"]) as client:
        make(client, "Gone")
        make(client, "Again")
        fill(client, "Gone", [b"g%d" % number for number in range(20)])
        fill(client, "Again", [b"old%d" % number for number in range(20)])
        fill(client, "Kept", [b"k"])
        assert client.ask(DELETE_TOPIC, topic="Gone").code == 0
        assert client.ask(DELETE_TOPIC, topic="Again").code == 0
        make(client, "Again")
        fill(client, "Again", [b"new0", b"new1"])
        if is_killed:  # what is on the disk now is what a kill would leave
            shutil.copytree(tmp_path / "data", tmp_path / "copy")
    data = tmp_path / ("copy" if is_killed else "data")
    with running(up_command(data)) as ready, WireClient(ready["broker"]) as client:
        assert "Gone" not in configs(client)
        assert client.call(pull_request("Gone", "G", 0)).code == 17
        assert bodies(client, "Again") == [b"new0", b"new1"]
        assert bodies(client, "Kept") == [b"k"]
        sent = client.call(send_request("Again", b"new2"))
        assert sent.fields["queueOffset"] == "2"
    assert not (data / "store" / "aside").exists()
