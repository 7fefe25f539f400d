"""The README's Python programs and shell commands, run as they stand against a real broker."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.testing import EmbeddedBroker
from tests.cli.commands import Running

pytestmark = pytest.mark.timeout(180)  # other processes start, on a machine that may be busy

README = (Path(__file__).parents[2] / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL_BLOCKS = re.findall(r"```sh\n(orbitmq send .*?)```", README, re.DOTALL)
DEFAULT = "127.0.0.1:9876"
LIMIT_S = 60


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.namesrv


def _run(folder: Path, *command: str, typed: str = "") -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        input=typed,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_first_message_is_sent_and_its_consumer_ends_by_enter(
    namesrv: str, tmp_path: Path
) -> None:
    (tmp_path / "first.py").write_text(PROGRAMS[0].replace(DEFAULT, namesrv))
    assert "Enter ends it" in _run(tmp_path, "first.py", typed="\n")


def test_the_handler_gets_an_order_and_sends_a_shipment(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAMS[1])
    deliver = (
        "import asyncio\nfrom shop import Order, app\nfrom orbitmq.app import TestClient\n"
        "async def play():\n    async with TestClient(app) as client:\n"
        "        await client.deliver('orders', Order(1), tag='paid', keys=['1'])\n"
        "        print(client.sent[0].topic, client.sent[0].body)\n"
        "asyncio.run(play())\n"
    )
    assert _run(tmp_path, "-c", deliver) == "shipments b'{\"order\":1}'\n"


def test_the_shell_commands_do_what_they_say(
    namesrv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = SHELL_BLOCKS
    send, tail, show = (shlex.split(line)[1:] for line in block.splitlines())
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)
    assert os.environ["NAMESRV_ADDR"] == namesrv
    assert _run(tmp_path, "-m", "orbitmq", *send).startswith("SEND_OK")
    with Running("orbitmq", *tail, folder=tmp_path) as tailing:
        while '{"id": 2}' not in (line := tailing.line()):
            assert line, tailing.errors.read_text()
    assert "orders: " in _run(tmp_path, "-m", "orbitmq", *show)
