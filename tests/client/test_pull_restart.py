"""A pull consumer while its broker and name server are killed and come back."""

import logging
import re
import sys
from pathlib import Path

import pytest

from orbitmq.client.pull_consumer import PullConsumer
from orbitmq.wire.bodies_client import ConsumeFromWhere
from tests.client.sites import fill, make_topic, run
from tests.foreign.judged import System, judged_original
from tests.foreign.running import running, started


def up(data_dir: Path, namesrv_port: str = "0", broker_port: str = "0") -> list[str]:
    """Return the command that starts a name server and a broker at these ports."""
    command = [sys.executable, "-m", "orbitmq", "up", "--data-dir", str(data_dir)]
    command += ["--host", "127.0.0.1", "--namesrv-port", namesrv_port]
    return [*command, "--broker-port", broker_port, "--dashboard-port", "0"]


def test_a_consumer_goes_on_by_itself_after_its_broker_and_name_server_were_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if judged_original() is not None:
        pytest.skip("originals are started once for all tests")

    async def work() -> None:
        found: list[bytes] = []
        with started(up(tmp_path)) as program:
            system = System(program.ready["namesrv"], program.ready["broker"])
            queue = make_topic(system, "orders", 1)[0]
            fill(system, queue, [b"1", b"2", b"3"])
            consumer = PullConsumer(
                system.namesrv, "billing", from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            )
            await consumer.subscribe("orders")
            await consumer.start()
            while len(found) < 3:
                found += [message.body for message in await consumer.poll()]
            await consumer.commit()
            program.kill()
        while "broker broker-a is not pulled" not in caplog.text:
            assert await consumer.poll(0.05) == []
        ports = [address.rpartition(":")[2] for address in (system.namesrv, system.broker)]
        with running(up(tmp_path, *ports)):
            make_topic(system, "orders", 1)
            fill(system, queue, [b"4"])
            while len(found) < 4:
                found += [message.body for message in await consumer.poll()]
            await consumer.commit()
            assert await consumer.committed(queue) == 4
            await consumer.close()
        assert found == [b"1", b"2", b"3", b"4"]

    with caplog.at_level(logging.INFO, "orbitmq.client"):
        run(work())
    told = [record.getMessage() for record in caplog.records]
    assert len([line for line in told if "broker broker-a is not pulled for now" in line]) == 1
    assert len([line for line in told if re.fullmatch("broker-a: it works again", line)]) == 1
