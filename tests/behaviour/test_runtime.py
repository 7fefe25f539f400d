"""What a broker tells of itself: runtime info (28) and figures by name (315).

Differences that are kept: an original of 4.9 that began less than a second ago answers 28 with 1
(its lists have no sample yet), leaves a rate empty until it has samples, and says -1 for the
earliest message of a young store.
"""

import json
import re
from collections.abc import Callable

import pytest

from tests.behaviour.requests import fill, pull_request
from tests.foreign.asking import await_claim
from tests.foreign.judged import System
from tests.wire_client import WireClient

Fresh = Callable[[str], str]

RUNTIME = 28
VIEW_STATS = 315
SAMPLE_LIMIT_S = 30.0

EMPTY = {"sum": 0, "tps": 0.0, "avgpt": 0.0}

KEYS_4_9_7 = """
    brokerVersionDesc brokerVersion bootTimestamp runtime startAcceptSendRequestTimeStamp
    msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow
    msgGetTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalTodayNow
    sendThreadPoolQueueSize sendThreadPoolQueueCapacity sendThreadPoolQueueHeadWaitTimeMills
    pullThreadPoolQueueSize pullThreadPoolQueueCapacity pullThreadPoolQueueHeadWaitTimeMills
    queryThreadPoolQueueSize queryThreadPoolQueueCapacity queryThreadPoolQueueHeadWaitTimeMills
    EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity dispatchBehindBytes
    pageCacheLockTimeMills earliestMessageTimeStamp remainTransientStoreBufferNumbs
    remainHowManyDataToFlush commitLogDirCapacity putMessageEntireTimeMax putMessageTimesTotal
    putMessageFailedTimes putMessageSizeTotal putMessageDistributeTime putMessageAverageSize
    dispatchMaxBuffer getMessageEntireTimeMax putTps getFoundTps getMissTps getTotalTps
    getTransferedTps putLatency99 putLatency999 commitLogDiskRatio consumeQueueDiskRatio
    commitLogMinOffset commitLogMaxOffset
"""


def runtime(client: WireClient) -> dict[str, str]:
    """The runtime table; an original that has just begun is asked again."""
    await_claim(lambda: client.ask(RUNTIME).code == 0, "28 is answered", SAMPLE_LIMIT_S)
    answer = client.ask(RUNTIME)
    assert answer.code == 0, answer.remark
    table: dict[str, str] = json.loads(answer.body)["table"]
    return table


def minute(client: WireClient, name: str, key: str) -> dict[str, float]:
    answer = client.ask(VIEW_STATS, statsName=name, statsKey=key)
    assert answer.code == 0, answer.remark
    body = json.loads(answer.body)
    assert body.keys() == {"statsMinute", "statsHour", "statsDay"}
    figures: dict[str, float] = body["statsMinute"]
    return figures


def test_the_runtime_table_has_every_key_of_the_original_with_texts(system: System) -> None:
    with WireClient(system.broker) as client:
        table = runtime(client)
    assert set(KEYS_4_9_7.split()) <= table.keys()
    assert any(key.startswith("commitLogDiskRatio_/") for key in table)
    assert all(isinstance(value, str) for value in table.values())


def test_the_runtime_table_counts_what_is_put_and_got(system: System, fresh_name: Fresh) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        before = runtime(client)
        fill(client, topic, [b"x" * 100] * 5)
        assert client.call(pull_request(topic, group, 1)).code == 0
        after = runtime(client)

    def grown(key: str) -> int:
        return int(after[key]) - int(before[key])

    assert grown("msgPutTotalTodayNow") == 5
    assert int(after["putMessageTimesTotal"]) >= 5  # an original that has none says 1
    assert grown("msgGetTotalTodayNow") == 4
    size = grown("putMessageSizeTotal")
    assert size > 500
    assert grown("commitLogMaxOffset") == size
    assert after["bootTimestamp"] == before["bootTimestamp"]


def test_a_delayed_message_counts_when_it_is_parked_and_when_it_is_delivered(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    holds = {"sysFlag": 6, "suspendTimeoutMillis": 15_000}
    with WireClient(system.broker) as client:
        fill(client, topic, [b"plain"], e=1)
        before = int(runtime(client)["msgPutTotalTodayNow"])
        fill(client, topic, [b"late"], i="DELAY\x011")
        assert int(runtime(client)["msgPutTotalTodayNow"]) == before + 1
        assert client.call(pull_request(topic, group, 0, **holds)).code == 0
        assert int(runtime(client)["msgPutTotalTodayNow"]) == before + 2


@pytest.mark.parametrize(
    ("key", "form"),
    [
        ("runtime", r"\[ \d+ days, \d+ hours, \d+ minutes, \d+ seconds \]"),
        ("commitLogDirCapacity", r"Total : [\d.]+ [KMGT]iB, Free : [\d.]+ [KMGT]iB\."),
        ("remainHowManyDataToFlush", r"(\d+ B|[\d.]+ [KMGT]iB)"),
        ("commitLogDiskRatio", r"[01]\.\d+"),
        ("consumeQueueDiskRatio", r"[01]\.\d+"),
        ("putTps", r"[\d.E-]* [\d.E-]* [\d.E-]*"),
        ("getTransferedTps", r"[\d.E-]* [\d.E-]* [\d.E-]*"),
        ("putMessageDistributeTime", r"null|(\[[^]]+\]:\d+ ){13}"),
        ("putLatency99", r"\d+\.\d\d"),
        ("brokerVersionDesc", r"V4_9_7"),
        ("brokerVersion", r"407"),
    ],
)
def test_values_of_the_runtime_table_have_the_forms_that_tools_parse(
    system: System, key: str, form: str
) -> None:
    with WireClient(system.broker) as client:
        assert re.fullmatch(form, runtime(client)[key])


def test_figures_show_within_the_next_sample_what_was_put_and_got(
    system: System, fresh_name: Fresh
) -> None:
    """Put counts by topic, got counts by topic and group, each with its size and times."""
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x" * 100] * 12)
        for count in (12, 4, 1):
            answer = client.call(pull_request(topic, group, 0, maxMsgNums=count))
            assert answer.code == 0
        one_size = len(answer.body)
        got = f"{topic}@{group}"
        await_claim(
            lambda: (
                minute(client, "TOPIC_PUT_NUMS", topic)["sum"] == 12
                and minute(client, "GROUP_GET_NUMS", got)["sum"] == 17
            ),
            "the figures of the last minute show",
            SAMPLE_LIMIT_S,
        )
        put_count = minute(client, "TOPIC_PUT_NUMS", topic)
        put_size = minute(client, "TOPIC_PUT_SIZE", topic)
        got_count = minute(client, "GROUP_GET_NUMS", got)
        got_size = minute(client, "GROUP_GET_SIZE", got)
        broker = minute(client, "BROKER_PUT_NUMS", "DefaultCluster")
    assert put_count["avgpt"] == 1.0
    assert (put_size["sum"], put_size["avgpt"]) == (12 * one_size, one_size)
    assert got_count["avgpt"] == pytest.approx(17 / 3)
    assert got_size["sum"] == 17 * one_size
    assert 12 / 70 < put_count["tps"] <= 1.3
    assert broker["sum"] >= 12


def test_a_delivered_delayed_message_is_a_get_of_its_level(
    system: System, fresh_name: Fresh
) -> None:
    """By queue and by group, with the size of what was delivered."""
    topic = fresh_name("T")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x" * 100] * 3, i="DELAY\x011")
        by_queue = "SCHEDULE_TOPIC_XXXX@0@SCHEDULE_CONSUMER"

        def has_sum() -> bool:
            answer = client.ask(VIEW_STATS, statsName="QUEUE_GET_NUMS", statsKey=by_queue)
            return answer.code == 0 and minute(client, "QUEUE_GET_NUMS", by_queue)["sum"] >= 3

        await_claim(has_sum, "the figures of the last minute show", SAMPLE_LIMIT_S)
        by_group = "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER"
        assert minute(client, "QUEUE_GET_SIZE", by_queue)["sum"] >= 300
        await_claim(
            lambda: minute(client, "GROUP_GET_NUMS", by_group)["sum"] >= 3,
            "so do those of the group",
            SAMPLE_LIMIT_S,
        )
        count = minute(client, "GROUP_GET_NUMS", by_group)
        assert count["avgpt"] == 1.0
        assert minute(client, "GROUP_GET_SIZE", by_group)["sum"] >= 300


def test_how_long_pulls_took_is_there_for_the_queue_that_was_pulled(
    system: System, fresh_name: Fresh
) -> None:
    topic, group = fresh_name("T"), fresh_name("G")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x"])
        assert client.call(pull_request(topic, group, 0)).code == 0
        assert minute(client, "GROUP_GET_LATENCY", f"0@{topic}@{group}")["sum"] >= 0
        answer = client.ask(VIEW_STATS, statsName="GROUP_GET_LATENCY", statsKey=f"{topic}@{group}")
    assert answer.code == 1


def test_a_figure_is_there_and_empty_before_its_first_sample(
    system: System, fresh_name: Fresh
) -> None:
    topic = fresh_name("T")
    with WireClient(system.broker) as client:
        fill(client, topic, [b"x"])
        answer = client.ask(VIEW_STATS, statsName="TOPIC_PUT_NUMS", statsKey=topic)
    assert answer.code == 0
    assert json.loads(answer.body)["statsDay"] == EMPTY


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "NOBODY"),
        ("GROUP_GET_NUMS", "NOBODY@NONE"),
        ("SNDBCK_PUT_NUMS", "NOBODY@NONE"),
        ("GROUP_GET_FALL_SIZE", "0@NOBODY@NONE"),
        ("GROUP_GET_LATENCY", "0@NOBODY@NONE"),
        ("GROUP_GET_LATENCY", "x@NOBODY@NONE"),
        ("QUEUE_PUT_NUMS", "NOBODY@0"),
        ("QUEUE_GET_NUMS", "NOBODY@0@NONE"),
        ("NO_SUCH_NAME", "NOBODY"),
    ],
)
def test_a_figure_that_was_never_counted_does_not_exist(
    system: System, name: str, key: str
) -> None:
    with WireClient(system.broker) as client:
        answer = client.ask(VIEW_STATS, statsName=name, statsKey=key)
    assert answer.code == 1
    assert (answer.remark or "").startswith(f"The stats <{name}> <{key}> not exist")


def test_a_figure_without_a_name_or_key_does_not_exist(system: System) -> None:
    with WireClient(system.broker) as client:
        answer = client.ask(VIEW_STATS)
    assert answer.code == 1
    assert (answer.remark or "").startswith("The stats <null> <null> not exist")
