"""Light queues of one broker: their number, settings, files, old ones, what a kill leaves.

Method: a broker in the test's loop, or as a process that is killed; real sockets, real files.
"""

import asyncio
import json
import shutil
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.record import scan_records
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import Running, running
from tests.cli.commands import Running as Program
from tests.cli.commands import run_command
from tests.cli.test_broker_command import address_of, broker
from tests.wire_client import WireClient

LIGHT = BrokerSettings(
    listen_port=0,
    mapped_file_size_commit_log=131_072,
    mapped_file_size_consume_queue=2_000,
    max_hash_slot_num=500,
    max_index_num=2_000,
    enable_lmq=True,
    enable_multi_dispatch=True,
    max_lmq_consume_queue_num=3,
)
SIZES = ("-D", "mappedFileSizeCommitLog=131072", "-D", "mappedFileSizeConsumeQueue=2000")
INDEX = ("-D", "maxHashSlotNum=500", "-D", "maxIndexNum=2000")
EVERY_HOUR = ";".join(f"{hour:02d}" for hour in range(24))
UNTIL_S = 20.0
MQTT = "%LMQ%home%+%#"
"""A name of MQTT's; no topic could have it."""
KEYS = ("-D", "enableLmq=true", "-D", "enableMultiDispatch=true")


def with_broker(
    folder: Path, use: Callable[[Running], Awaitable[None]], settings: BrokerSettings = LIGHT
) -> None:
    async def inner() -> None:
        async with running(folder, Turn(asyncio.get_running_loop()), settings) as broker:
            await use(broker)

    run(inner())


async def put(broker: Running, body: bytes, *names: str) -> tuple[int, str]:
    """Send a message to T and light queues; return what is answered."""
    properties = f"INNER_MULTI_DISPATCH\x01{','.join(names)}"
    answer = await broker.call(send_request("T", body, i=properties))
    return answer.code, answer.remark or ""


async def bodies_of(broker: Running, name: str) -> list[bytes]:
    answer = await broker.call(pull_request(name, "%LMQ%g", 0))
    return [record.body for record in scan_records(answer.body)]


# --- how many there may be ---


def test_one_light_queue_too_many_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    async def use(broker: Running) -> None:
        assert await put(broker, b"0", "%LMQ%a", "%LMQ%b") == (0, "")
        for names in (("%LMQ%c", "%LMQ%d"), ("%LMQ%a", "%LMQ%d", "%LMQ%c")):
            code, remark = await put(broker, b"no", *names)
            assert code == ResponseCode.SYSTEM_ERROR
            assert remark.startswith("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]")
            assert "there are 2, limit 3" in remark
        assert await put(broker, b"1", "%LMQ%c", "%LMQ%a") == (0, "")
        assert (await broker.call(send_request("%LMQ%d", b"no"))).code == ResponseCode.SYSTEM_ERROR
        assert (await broker.call(send_request("T", b"2"))).code == 0
        assert await bodies_of(broker, "%LMQ%a") == [b"0", b"1"]
        assert await bodies_of(broker, "T") == [b"0", b"1", b"2"]
        changed = b"maxLmqConsumeQueueNum=4"
        request = send_request("T", changed)
        request.code, request.fields = RequestCode.UPDATE_BROKER_CONFIG, {}
        assert (await broker.call(request)).code == 0
        assert await put(broker, b"3", "%LMQ%d") == (0, "")

    with_broker(tmp_path, use)


def test_a_message_whose_own_light_queue_takes_the_last_place_is_not_stored(
    tmp_path: Path,
) -> None:
    """Symptom: it was refused for its other light queue, and stored all the same."""

    async def use(broker: Running) -> None:
        assert await put(broker, b"0", "%LMQ%a", "%LMQ%b") == (0, "")
        properties = "INNER_MULTI_DISPATCH\x01%LMQ%c"
        answer = await broker.call(send_request("%LMQ%own", b"no", i=properties))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (await broker.call(send_request("T", b"1"))).code == 0
        for name, bodies in (("T", [b"0", b"1"]), ("%LMQ%own", []), ("%LMQ%c", [])):
            assert await bodies_of(broker, name) == bodies

    with_broker(tmp_path, use)


def test_pulls_of_light_queues_that_are_not_there_make_none(tmp_path: Path) -> None:
    """Symptom on originals: such pulls use up maxLmqConsumeQueueNum, and messages are refused."""

    async def use(broker: Running) -> None:
        for number in range(10):
            assert await bodies_of(broker, f"%LMQ%{number}") == []
        assert await put(broker, b"0", "%LMQ%a", "%LMQ%b", "%LMQ%9") == (0, "")
        assert await bodies_of(broker, "%LMQ%9") == [b"0"]

    with_broker(tmp_path, use)
    assert len(list((tmp_path / "consumequeue").glob("%LMQ%*"))) == 3


def test_the_number_counts_those_of_earlier_lives_and_not_deleted_ones(tmp_path: Path) -> None:
    async def fill(broker: Running) -> None:
        assert await put(broker, b"0", "%LMQ%a", MQTT, "%LMQ%c") == (0, "")

    async def more(broker: Running) -> None:
        assert (await put(broker, b"1", "%LMQ%d"))[0] == ResponseCode.SYSTEM_ERROR
        assert (await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=MQTT)).code == 0
        assert (await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="%LMQ%no")).code == 0
        assert await put(broker, b"1", "%LMQ%d") == (0, "")

    async def last(broker: Running) -> None:
        found = [await bodies_of(broker, name) for name in ("%LMQ%a", MQTT, "%LMQ%c", "%LMQ%d")]
        assert found == [[b"0"], [], [b"0"], [b"1"]]

    for use in (fill, more, last):
        with_broker(tmp_path, use)
    notes = json.loads((tmp_path / "config" / "removedTopics.json").read_text())
    assert list(notes["removedTopics"]) == [MQTT]


# --- settings ---


@pytest.mark.parametrize(
    "settings",
    [
        {"enable_lmq": False, "enable_multi_dispatch": False},
        {"enable_lmq": False},
        {"enable_multi_dispatch": False},
    ],
)
def test_with_one_of_the_keys_off_no_message_goes_to_light_queues(
    tmp_path: Path, settings: dict[str, bool]
) -> None:
    async def use(broker: Running) -> None:
        code, remark = await put(broker, b"0", "%LMQ%a")
        assert code == ResponseCode.MESSAGE_ILLEGAL
        assert "light queues need enableLmq and enableMultiDispatch" in remark

    with_broker(tmp_path, use, msgspec.structs.replace(LIGHT, **settings))


def test_light_queues_rest_while_the_keys_are_off(tmp_path: Path) -> None:
    async def fill(broker: Running) -> None:
        assert await put(broker, b"0", "%LMQ%a") == (0, "")

    async def rest(broker: Running) -> None:
        answer = await broker.call(pull_request("%LMQ%a", "G", 0))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert b"%LMQ%" not in (await broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).body
        assert (await broker.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0

    async def go_on(broker: Running) -> None:
        assert await put(broker, b"1", "%LMQ%a") == (0, "")
        assert await bodies_of(broker, "%LMQ%a") == [b"0", b"1"]

    off = msgspec.structs.replace(LIGHT, enable_lmq=False, enable_multi_dispatch=False)
    with_broker(tmp_path, fill)
    with_broker(tmp_path, rest, off)
    with_broker(tmp_path, go_on)


def test_the_first_offsets_are_those_of_before_and_all_are_in_one_file(tmp_path: Path) -> None:
    """Symptom on originals: with enableLmq every group begins anew."""
    commit = RequestCode.UPDATE_CONSUMER_OFFSET
    usual: dict[str, str | int] = {"consumerGroup": "G", "topic": "T", "queueId": 0}
    light: dict[str, str | int] = {"consumerGroup": "%LMQ%g", "topic": "%LMQ%a", "queueId": 0}

    async def before(broker: Running) -> None:
        for _ in range(2):
            assert (await broker.call(send_request("T"))).code == 0
        assert (await broker.ask(commit, commitOffset=1, **usual)).code == 0

    async def first(broker: Running) -> None:
        query = RequestCode.QUERY_CONSUMER_OFFSET
        assert (await broker.ask(query, **usual)).fields["offset"] == "1"
        assert await put(broker, b"0", "%LMQ%a") == (0, "")
        assert (await broker.ask(commit, commitOffset=1, **light)).code == 0
        assert (await broker.ask(commit, commitOffset=2, **usual)).code == 0

    async def second(broker: Running) -> None:
        query = RequestCode.QUERY_CONSUMER_OFFSET
        assert (await broker.ask(query, **usual)).fields["offset"] == "2"
        assert (await broker.ask(query, **light)).fields["offset"] == "1"

    with_broker(tmp_path, before, msgspec.structs.replace(LIGHT, enable_lmq=False))
    for use in (first, second):
        with_broker(tmp_path, use)
    table = json.loads(
        (tmp_path / "config" / "lmqConsumerOffset.json").read_text().replace("{0:", '{"0":')
    )
    assert table == {"lmqOffsetTable": {"%LMQ%a@%LMQ%g": 1}, "offsetTable": {"T@G": {"0": 2}}}


# --- files ---


def light_broker(folder: Path, *more: str) -> Program:
    return broker(folder, *SIZES, *INDEX, *KEYS, *more)


def fill_many(address: str, first: int, count: int) -> None:
    with WireClient(address) as client:
        for number in range(first, first + count):
            names = f"%LMQ%all,%LMQ%{number % 3}"
            properties = f"UNIQ_KEY\x01U{number}\x02INNER_MULTI_DISPATCH\x01{names}"
            body = b"%d" % number
            answer = client.call(send_request("T", body.ljust(200), e=number % 4, i=properties))
            assert answer.code == 0, answer.remark


def read_all(address: str, name: str) -> list[int]:
    found: list[int] = []
    with WireClient(address) as client:
        while True:
            answer = client.call(pull_request(name, "%LMQ%g", len(found)))
            if answer.code != 0:
                return found
            found += [int(record.body) for record in scan_records(answer.body)]


def check(folder: Path) -> str:
    done = run_command("orbitmq", "store", "check", "data", *INDEX, folder=folder)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("loss", ["nothing", "files of light queues", "all queues"])
def test_light_queues_are_read_back_from_the_log_after_a_kill(tmp_path: Path, loss: str) -> None:
    count = 300
    for life in range(2):
        with light_broker(tmp_path) as program:
            address = address_of(program.line())
            assert read_all(address, "%LMQ%all") == list(range(life * count))
            fill_many(address, life * count, count)
            assert program.stop(signal.SIGKILL) == -signal.SIGKILL
    queues = tmp_path / "data" / "store" / "consumequeue"
    if loss != "nothing":
        for path in queues.glob("%LMQ%*" if loss.startswith("files") else "*"):
            shutil.rmtree(path)
    with light_broker(tmp_path) as program:
        address = address_of(program.line())
        assert read_all(address, "%LMQ%all") == list(range(2 * count))
        assert read_all(address, "%LMQ%1") == list(range(1, 2 * count, 3))
        fill_many(address, 2 * count, 3)
        assert read_all(address, "%LMQ%2") == list(range(2, 2 * count + 3, 3))
        assert program.stop() == 0
    assert f"{3 * (2 * count + 3):,} queue entries" in check(tmp_path)


def test_a_check_finds_a_wrong_entry_of_a_light_queue_and_repair_mends_it(tmp_path: Path) -> None:
    with light_broker(tmp_path) as program:
        fill_many(address_of(program.line()), 0, 20)
        assert program.stop() == 0
    check(tmp_path)
    path = tmp_path / "data" / "store" / "consumequeue" / "%LMQ%all" / "0" / f"{0:020d}"
    before = path.read_bytes()
    path.write_bytes(before[:20] + before[40:60] + before[40:])
    done = run_command("orbitmq", "store", "check", "data", *INDEX, folder=tmp_path)
    assert done.returncode == 1
    assert "entry 1 is not what the log says" in done.stdout
    done = run_command("orbitmq", "store", "repair", "data", *INDEX, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert path.read_bytes() == before
    check(tmp_path)


def test_old_messages_leave_light_queues_with_their_log_files(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(
        LIGHT,
        mapped_file_size_consume_queue=200,
        file_reserved_time=0,
        delete_when=EVERY_HOUR,
        clean_resource_interval=100,
        flush_interval_consume_queue=10,
        flush_consume_queue_thorough_interval=100,
    )

    files = tmp_path / "consumequeue" / "%LMQ%a" / "0"

    async def ends(broker: Running) -> tuple[int, int]:
        asked = [await broker.ask(code, topic="%LMQ%a", queueId=0) for code in (31, 30)]
        first, end = (int(answer.fields["offset"]) for answer in asked)
        return first, end

    async def use(broker: Running) -> None:
        for number in range(400):
            assert await put(broker, (b"%d" % number).ljust(2_000), "%LMQ%a") == (0, "")
        async with asyncio.timeout(UNTIL_S):
            while (await ends(broker))[0] < 300 or len(list(files.iterdir())) > 12:
                await asyncio.sleep(0.01)
        first, _ = await ends(broker)
        answer = await broker.call(pull_request("%LMQ%a", "%LMQ%g", first))
        assert int(next(iter(scan_records(answer.body))).body) == first

    async def again(broker: Running) -> None:
        first, end = await ends(broker)
        assert (first >= 300, end) == (True, 400)
        assert await put(broker, b"400", "%LMQ%a") == (0, "")

    with_broker(tmp_path, use, settings)
    with_broker(tmp_path, again, settings)
