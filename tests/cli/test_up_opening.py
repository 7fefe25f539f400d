"""`orbitmq up` while it reads back a log: it can be stopped, and its name server serves.

Method: the real command, in a process whose recovery stands still at the first report of how far it
is, until it is told to give up. So the signal always comes in the middle.
"""

import logging
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.broker.store_opening import OpeningStopped, StoreOpening
from orbitmq.config import BrokerSettings
from orbitmq.wire.record import scan_records
from tests.behaviour.requests import fill, pull_request
from tests.cli.test_up_command import BODIES, up
from tests.store.opened import send
from tests.wire_client import WireClient

HELD = """
import sys, time
from orbitmq.broker import store_opening
from orbitmq.cli.main import main

class Held(store_opening.Store):
    def __init__(self, outside, root, options, retention, progress):
        def hold(done, most):
            print("reading", file=sys.stderr, flush=True)
            while True:
                progress(done, most)
                time.sleep(0.01)
        super().__init__(outside, root, options, retention, hold)

store_opening.Store = Held
sys.exit(main(sys.argv[1:]))
"""


def filled(folder: Path) -> None:
    with up(folder) as running, WireClient(running.broker) as client:
        fill(client, "Orders", BODIES)
        running.end(signal.SIGKILL)


def assert_all_there(folder: Path) -> None:
    with up(folder) as running, WireClient(running.broker) as client:
        answer = client.call(pull_request("Orders", "Readers", 0))
        bodies = [record.body for record in scan_records(answer.body)]
        assert bodies == BODIES[: len(bodies)]
        assert len(bodies) == 32


def test_a_stop_signal_is_obeyed_while_the_log_is_read_back(tmp_path: Path) -> None:
    """Symptom: SIGTERM was ignored until a recovery of minutes was over."""
    filled(tmp_path)
    command = [sys.executable, "-c", HELD, "up", "--data-dir", str(tmp_path)]
    command += ["--namesrv-port", "0", "--broker-port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        lines: list[str] = []
        while not lines or lines[-1] != "reading\n":
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        address = re.search(r"name server is on (\S+);", "".join(lines))
        assert address is not None
        with WireClient(address[1]) as client:
            assert client.ask(206).code == 0, "the name server serves meanwhile"
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=20)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 0, errors
    assert output == "", "it never was ready"
    assert "stopped before it was ready" in errors
    assert "Traceback" not in errors
    assert_all_there(tmp_path)


def test_an_opening_that_is_given_up_says_so_and_lets_the_folder_go(tmp_path: Path) -> None:
    settings = BrokerSettings(mapped_file_size_commit_log=1 << 20)
    store = StoreOpening(settings, tmp_path).run()
    send(store, 0, b"x")
    store.close()
    opening = StoreOpening(settings, tmp_path)
    opening.stop()
    with pytest.raises(OpeningStopped, match="nothing is lost"):
        opening.run()
    StoreOpening(settings, tmp_path).run().close()


def test_nothing_told_that_recovery_ran_after_a_kill(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    StoreOpening(BrokerSettings(), tmp_path).run().close()
    StoreOpening(BrokerSettings(), tmp_path).run().close()
    assert not caplog.messages
    (tmp_path / "abort").touch()  # what a kill leaves
    StoreOpening(BrokerSettings(), tmp_path).run().close()
    assert f"the last run did not close {tmp_path}: recovery has checked it" in caplog.text
