"""Finding messages again: by key, id, time and offset, in memory and from the files."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from orbitmq.config import BrokerSettings
from orbitmq.net.turn import Turn
from orbitmq.store.dump import Seen, Wanted, dump
from orbitmq.store.options import StoreOptions
from orbitmq.wire.batch import BatchMessage, encode_batch
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.java import string_hash
from orbitmq.wire.record import Record, scan_records
from orbitmq.world.files import SystemFiles
from orbitmq.world.net import run
from tests.behaviour.requests import pull_request, send_request
from tests.broker.running import Running, begin

SETTINGS = BrokerSettings(listen_port=0, mapped_file_size_commit_log=1 << 18)
COUNT = 300
NEVER = 2**62


def bodies(answer: Command) -> list[bytes]:
    assert answer.code == 0, answer.remark
    return [record.body for record in scan_records(answer.body)]


async def send_all(running: Running) -> list[Command]:
    answers = []
    for number in range(COUNT):
        properties = f"UNIQ_KEY\x01U{number}\x02KEYS\x01k{number % 7} all\x02TAGS\x01t{number % 3}"
        request = send_request("T", b"%04d" % number, i=properties)
        answers.append(await running.call(request))
    assert all(answer.code == 0 for answer in answers)
    return answers


async def query(running: Running, key: str, count: int = 64) -> Command:
    return await running.ask(
        RequestCode.QUERY_MESSAGE,
        topic="T",
        key=key,
        maxNum=count,
        beginTimestamp=0,
        endTimestamp=NEVER,
    )


def with_brokers(
    folder: Path,
    *uses: Callable[[Running], Awaitable[None]],
    settings: BrokerSettings = SETTINGS,
) -> None:
    """Run one broker after the other on one folder."""

    async def inner() -> None:
        turn = Turn(asyncio.get_running_loop())
        for use in uses:
            running = await begin(folder, turn, settings, SystemFiles())
            try:
                await use(running)
            finally:
                await running.stop()

    run(inner())


@pytest.mark.parametrize("is_restarted", [False, True], ids=["at once", "after a restart"])
def test_the_newest_messages_of_a_key_are_found_and_given_in_log_order(
    tmp_path: Path, is_restarted: bool
) -> None:
    async def write(running: Running) -> None:
        await send_all(running)
        if not is_restarted:
            await look(running)

    async def look(running: Running) -> None:
        expected = [b"%04d" % number for number in range(COUNT) if number % 7 == 3]
        assert bodies(await query(running, "k3")) == expected
        newest = [b"%04d" % number for number in range(COUNT - 64, COUNT)]
        assert bodies(await query(running, "all", 1000)) == newest
        assert bodies(await query(running, "U17")) == [b"0017"]
        missing = await query(running, "nobody")
        assert (missing.code, missing.body) == (22, b"")

    with_brokers(tmp_path, write, *([look] if is_restarted else []))


def test_a_message_is_found_by_its_id_and_nothing_between_two(tmp_path: Path) -> None:
    async def use(running: Running) -> None:
        answers = await send_all(running)
        offset = int(answers[42].fields["msgId"][-16:], 16)
        assert bodies(await running.ask(33, offset=offset)) == [b"0042"]
        wrong = await running.ask(33, offset=offset + 1)
        assert wrong.code == 1
        assert str(offset + 1) in (wrong.remark or "")
        assert (await running.ask(33, offset=NEVER)).code == 1

    with_brokers(tmp_path, use)


def test_old_messages_are_pulled_from_the_files_after_a_restart(tmp_path: Path) -> None:
    async def write(running: Running) -> None:
        await send_all(running)

    async def read(running: Running) -> None:
        found: list[bytes] = []
        while len(found) < COUNT:
            answer = await running.call(pull_request("T", "G", len(found)))
            got = bodies(answer)
            assert 1 <= len(got) <= 8, "the original's limit for messages on disk"
            found += got
            assert int(answer.fields["nextBeginOffset"]) == len(found)
        assert found == [b"%04d" % number for number in range(COUNT)]
        one_tag = await running.call(pull_request("T", "G", 0, subscription="t1"))
        assert (
            bodies(one_tag) == [b"%04d" % number for number in range(COUNT) if number % 3 == 1][:8]
        )

    with_brokers(tmp_path, write, read)


def test_offsets_of_a_queue_by_end_and_by_time(tmp_path: Path) -> None:
    async def use(running: Running) -> None:
        await send_all(running)
        ends = [await running.ask(code, topic="T", queueId=0) for code in (30, 31)]
        assert [answer.fields["offset"] for answer in ends] == [str(COUNT), "0"]
        first = await running.ask(32, topic="T", queueId=0)
        first_ms = int(first.fields["timestamp"])
        assert first_ms > 0
        for time_ms, expected in ((0, 0), (first_ms - 1, 0), (NEVER, COUNT - 1)):
            answer = await running.ask(29, topic="T", queueId=0, timestamp=time_ms)
            assert int(answer.fields["offset"]) == expected

    with_brokers(tmp_path, use)


def test_a_queue_that_does_not_exist_has_the_offsets_of_an_empty_one(tmp_path: Path) -> None:
    async def use(running: Running) -> None:
        for code, expected in ((30, "0"), (31, "0"), (29, "0")):
            answer = await running.ask(code, topic="nobody", queueId=7, timestamp=5)
            assert (answer.code, answer.fields["offset"]) == (0, expected)
        assert (await running.ask(32, topic="nobody", queueId=7)).fields["timestamp"] == "-1"

    with_brokers(tmp_path, use)


def batch_request(*messages: BatchMessage, **changes: str | int) -> Command:
    request = send_request("T", encode_batch(messages), m="true", **changes)
    return Command(RequestCode.SEND_BATCH_MESSAGE, fields=request.fields, body=request.body)


def test_a_batch_is_stored_message_by_message_and_answered_with_all_ids(tmp_path: Path) -> None:
    async def use(running: Running) -> None:
        messages = [
            BatchMessage(b"b%d" % number, f"KEYS\x01bk{number}\x02TAGS\x01x".encode(), number)
            for number in range(5)
        ]
        answer = await running.call(batch_request(*messages, i="WAIT\x01true"))
        ids = answer.fields["msgId"].split(",")
        assert (answer.code, len(ids), answer.fields["queueOffset"]) == (0, 5, "0")
        pulled = await running.call(pull_request("T", "G", 0, subscription="x"))
        records = list(scan_records(pulled.body))
        assert [record.body for record in records] == [b"b0", b"b1", b"b2", b"b3", b"b4"]
        assert [record.flag for record in records] == [0, 1, 2, 3, 4]
        assert records[2].properties == (
            b"KEYS\x01bk2\x02TAGS\x01x\x02WAIT\x01true\x02CLUSTER\x01DefaultCluster"
        )
        assert bodies(await query(running, "bk3")) == [b"b3"]

    with_brokers(tmp_path, use)


def test_a_torn_or_too_large_batch_is_refused_as_a_whole(tmp_path: Path) -> None:
    async def use(running: Running) -> None:
        whole = batch_request(BatchMessage(b"good"), BatchMessage(b"bad"))
        torn = Command(whole.code, fields=whole.fields, body=whole.body[:-1])
        assert (await running.call(torn)).code == 13
        large = batch_request(*[BatchMessage(bytes(60_000)) for _ in range(4)])
        answer = await running.call(large)
        assert answer.code == 13
        assert "maxMessageSize" in (answer.remark or "")
        assert (await running.ask(30, topic="T", queueId=0)).fields["offset"] == "0"

    with_brokers(tmp_path, use)


def test_many_small_messages_are_counted_with_what_their_records_need(tmp_path: Path) -> None:
    """Symptom: bodies alone were counted, and a batch that fits no log file was a bug of ours."""

    async def use(running: Running) -> None:
        answer = await running.call(batch_request(*[BatchMessage(b"x") for _ in range(4_000)]))
        assert answer.code == 13
        assert "mappedFileSizeCommitLog" in (answer.remark or "")
        answer = await running.call(batch_request(*[BatchMessage(b"x") for _ in range(1_000)]))
        assert (answer.code, len(answer.fields["msgId"].split(","))) == (0, 1_000)

    with_brokers(tmp_path, use)


def test_a_broker_without_index_finds_nothing_by_key_and_everything_by_offset(
    tmp_path: Path,
) -> None:
    async def use(running: Running) -> None:
        (answer, *_) = await send_all(running)
        assert (await query(running, "k3")).code == 22
        offset = int(answer.fields["msgId"][-16:], 16)
        assert bodies(await running.ask(33, offset=offset)) == [b"0000"]
        assert not list((tmp_path / "index").iterdir())

    settings = msgspec.structs.replace(SETTINGS, message_index_enable=False)
    with_brokers(tmp_path, use, settings=settings)


def test_keys_with_one_hash_are_both_given_for_the_asker_to_tell_apart(tmp_path: Path) -> None:
    """The index knows hashes only: the original's broker gives both, too, and clients compare."""

    async def use(running: Running) -> None:
        assert string_hash("T#Aa") == string_hash("T#BB")
        for key in ("Aa", "BB", "CC"):
            request = send_request("T", key.encode(), i=f"KEYS\x01{key}")
            assert (await running.call(request)).code == 0
        assert bodies(await query(running, "BB")) == [b"Aa", b"BB"]

    with_brokers(tmp_path, use)
    wanted = Wanted(topic="T", key="BB")
    found = list(dump(SystemFiles(), tmp_path, wanted, StoreOptions()))
    assert [seen.record.body for seen in found if isinstance(seen, Seen)] == [b"BB"]


def test_a_group_goes_back_to_a_time_and_gets_what_it_had_consumed(tmp_path: Path) -> None:
    async def use(running: Running) -> None:
        await send_all(running)
        everything = await pulled_from(running, 0)
        middle = everything[COUNT // 2]
        place: dict[str, str | int] = {"consumerGroup": "G", "topic": "T", "queueId": 0}
        assert (await running.ask(15, commitOffset=COUNT, **place)).code == 0
        found = await running.ask(29, topic="T", queueId=0, timestamp=middle.store_ms)
        offset = int(found.fields["offset"])
        assert everything[offset].store_ms == middle.store_ms, "to the millisecond"
        assert (await running.ask(15, commitOffset=offset, **place)).code == 0
        start = int((await running.ask(14, **place)).fields["offset"])
        assert await pulled_from(running, start) == everything[offset:]

    with_brokers(tmp_path, use)


async def pulled_from(running: Running, offset: int) -> list[Record]:
    """Pull everything from an offset on."""
    records: list[Record] = []
    while offset < COUNT:
        answer = await running.call(pull_request("T", "G", offset))
        records += scan_records(answer.body)
        offset = int(answer.fields["nextBeginOffset"])
    return records
