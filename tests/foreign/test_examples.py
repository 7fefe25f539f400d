"""The examples of the documentation, run as a reader would run them."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from orbitmq import Admin, ConsumeFromWhere, Message, Producer, PushConsumer
from tests.docs.pages import beginning_with, of_language
from tests.foreign.asking import await_topic
from tests.foreign.judged import System
from tests.foreign.peers import mqadmin, mqadmin_script, original_jars, require_tool

ROOT = Path(__file__).parents[2]
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
RECEIVED = [f"received Hello OrbitMQ {number}" for number in (1, 2, 3)]

pytestmark = pytest.mark.foreign


def run_example(command: list[str], folder: Path) -> list[str]:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_java_example_sends_and_receives(system: System, tmp_path: Path) -> None:
    maven = require_tool("mvn")
    project = shutil.copytree(ROOT / "examples" / "java", tmp_path / "java")
    command = [maven, "-q", "-B", "compile", "exec:java", f"-Dexec.args={system.namesrv}"]
    lines = run_example(command, project)
    assert sum(line.endswith("sent SEND_OK") for line in lines) == 3  # Maven colours the first
    assert sorted(line for line in lines if line.startswith("received")) == RECEIVED


def test_the_go_example_sends_and_receives(system: System) -> None:
    go = require_tool("go")
    lines = run_example([go, "run", ".", system.namesrv], ROOT / "examples" / "go")
    assert lines.count("sent") == 3
    assert sorted(line for line in lines if line.startswith("received")) == RECEIVED


def test_mqadmin_does_what_the_pages_show(system: System) -> None:
    with Admin(system.namesrv) as admin, Producer(system.namesrv, "shown") as producer:
        for topic in ("orders", "FirstTopic"):
            admin.create_topic(topic)
            producer.send(Message(topic, b"x"))
    consumer = PushConsumer(system.namesrv, "shop", from_where=FIRST)
    consumer.subscribe("orders")
    with consumer:
        next(iter(consumer))
    await_topic(system.namesrv, "%RETRY%shop", "broker-a")
    shown = [shlex.split(one.line)[1:] for one in beginning_with("mqadmin")]
    assert len(shown) >= 6
    here = [[word.replace("127.0.0.1:9876", system.namesrv) for word in one] for one in shown]
    for words, output in zip(here, mqadmin_script("4.9.7", here), strict=True):
        assert output.err == "", words
        assert output.out.strip(), words


def test_the_page_says_of_every_command_of_the_tool_whether_it_was_tried() -> None:
    require_tool("java")
    page = (ROOT / "docs/guides/admin.md").read_text().partition("\n## ")[0]
    commands = re.findall(r"^   (\w+) ", mqadmin("4.9.7"), re.MULTILINE)
    assert len(commands) > 50
    assert [name for name in commands if f"`{name}`" not in page] == []


JAVA = """\
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

class Shown {{
    public static void main(String[] args) throws Exception {{
        byte[] body = {{1}};
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("shown");
        DefaultMQProducer producer = new DefaultMQProducer("shown");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        {shown}
        producer.shutdown();
        System.out.println("done");
        System.exit(0);
    }}
}}
"""


def test_the_lines_of_java_are_taken_by_the_java_client(system: System, tmp_path: Path) -> None:
    shown = of_language("java")
    assert len(shown) >= 3
    blocks = "".join(f"{{ {block.text} }}\n" for block in shown)
    (tmp_path / "Shown.java").write_text(JAVA.format(shown=blocks))
    command = [require_tool("java"), f"-Duser.home={tmp_path}", "-cp"]
    command += [f"{original_jars('4.9.7')}/*", "Shown.java", system.namesrv]
    assert run_example(command, tmp_path)[-1] == "done"
