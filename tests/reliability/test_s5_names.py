"""S5, names are data: hostile names in every name field of every request that the broker serves.

Method: a broker of its own; each request is answered, refused or served. Afterwards no file lies
outside the data folder or under a strange name, no log line was broken, nothing failed unforeseen,
memory is bounded, and a start on the same folder succeeds.
"""

import random
import re
import string
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.wire.command import Command, encode_command
from orbitmq.wire.frame import BINARY
from tests.behaviour.requests import pull_request, send_request
from tests.reliability.every_request import (
    NAME_FIELDS,
    NUMBER_FIELDS,
    TRUTH_FIELDS,
    Asker,
    Names,
    make_request,
    sane,
    served_codes,
    undescribed_bodies,
)
from tests.reliability.processes import BrokerProcess, broker_process
from tests.wire_client import WireClient

SMALL = [
    *("-D", "mappedFileSizeCommitLog=4194304", "-D", "mappedFileSizeConsumeQueue=20000"),
    *("-D", "maxHashSlotNum=1000", "-D", "maxIndexNum=4000"),
]
pytestmark = pytest.mark.timeout(180)
SAFE_PART = re.compile(r"[%|a-zA-Z0-9_.+-]{1,255}")
MEMORY_GROWTH_MIB_MAX = 200

HOSTILE = [
    *("", " ", ".", "..", "../../outside/a", "..\\..\\a", "/", "//", "a/b", "./a", "a/../../b"),
    *("{outside}", "{outside}/evil", "file://{outside}/evil", "%2e%2e%2foutside", "~", "$HOME"),
    *("a\nb", "a\r\n2026-01-01 00:00:00,000 INFO orbitmq forged", "\x1b[2J\x1b[31m", "a\x00b"),
    *("\x01\x02", "a\x01b\x02c", "\u2028\u2029\x85", "\u202eevil", "\ufeff", "a\tb", "\x7f"),
    *("тема", "主题", "موضوع", "🚀", "e\u0301", "ﬃ", "İ", "\U0010ffff"),
    *("%", "%RETRY%", "%RETRY%%RETRY%x", "%DLQ%", "%s%n%d", "{0}{x}", "{", '"', "'", "\\", "`id`"),
    *("a@b", "a#b", "a,b", "a;b", "a:b", "a|b", "a&b", "a=b", "a||b", "*", "null", "true", "-1"),
    *("<script>alert(1)</script>", "'; DROP TABLE x;--", "$(touch {outside}/evil)", "|sh"),
    *("CON", "a" * 127, "a" * 128, "a" * 255, "a" * 256, "b" * 2_000, "ж" * 1_500),
]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the data folder that must stay empty."""
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


@contextmanager
def attacked(tmp_path: Path) -> Iterator[tuple[BrokerProcess, Asker]]:
    """A broker to be attacked; what must hold afterwards is checked at the end of the block."""
    folder = tmp_path / "data"
    with broker_process(folder, *SMALL) as broker:
        before_mib = broker.own_mib()
        asker = Asker(broker.address)
        with closing(asker):
            yield broker, asker
        with WireClient(broker.address) as client:
            assert client.call(send_request("After")).code == 0
            assert client.call(pull_request("After", "G", 0)).code == 0
        assert broker.odd_log_lines() == []
        assert broker.metric("orbitmq_handler_errors_total") == 0, broker.log()[-3_000:]
        assert broker.metric("orbitmq_net_closes_total", reason="internal-error") == 0
        assert broker.own_mib() - before_mib < MEMORY_GROWTH_MIB_MAX
    with broker_process(folder, *SMALL) as again, WireClient(again.address) as client:
        assert client.call(pull_request("After", "G", 0)).code == 0
    assert_nothing_outside(tmp_path)


def assert_nothing_outside(tmp_path: Path) -> None:
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "outside"]
    assert list((tmp_path / "outside").iterdir()) == []
    strange = [
        str(path)
        for path in (tmp_path / "data").rglob("*")
        if path.is_symlink() or not SAFE_PART.fullmatch(path.name) or path.name in (".", "..")
    ]
    assert strange == []


def names_of(value: str) -> Names:
    """Return a chooser that is hostile in every field."""
    return lambda _field: value


def names_with(field: str, value: str) -> Names:
    """Return a chooser that is hostile in one field only."""
    return lambda one: value if one == field else sane(one)


def test_every_code_that_reads_a_body_is_described() -> None:
    assert undescribed_bodies() == []
    assert len(served_codes()) > 50
    assert {"topic", "consumerGroup", "group", "clientID", "key", "msgId"} <= set(NAME_FIELDS)


def test_hostile_names_in_all_fields_at_once_are_data(tmp_path: Path, outside: Path) -> None:
    with attacked(tmp_path) as (broker, asker):
        for template in HOSTILE:
            names = names_of(template.replace("{outside}", str(outside)))
            asker.ask_all([make_request(code, names) for code in served_codes()])
        assert asker.asked == len(HOSTILE) * len(served_codes())
        print(f"S5 names: {asker.asked} requests, {broker.own_mib()} MiB")


def test_a_hostile_name_in_one_field_of_an_otherwise_good_request_is_data(
    tmp_path: Path, outside: Path
) -> None:
    chosen = ["", "../../outside/a", f"{outside}/evil", "a\r\nb\x1b[31m", "ж" * 20_000, "%s{0}'\""]
    fields = [*NAME_FIELDS, "subString", "tag", "settingKey", "settingValue", "body"]
    with attacked(tmp_path) as (_broker, asker):
        good = asker.ask_all([make_request(code, sane) for code in served_codes()])
        assert sum(answer.code == 0 for answer in good) > len(good) // 2, "most of it is served"
        for field in fields:
            asker.ask_all(
                [
                    make_request(code, names_with(field, name))
                    for code in served_codes()
                    for name in chosen
                ]
            )


TEXT = st.text(st.characters(codec="utf-8"), max_size=60) | st.sampled_from(HOSTILE)


def test_random_names_are_data(tmp_path: Path, outside: Path) -> None:
    codes, fields = served_codes(), [*NAME_FIELDS, "subString", "tag"]
    with attacked(tmp_path) as (_broker, asker):

        @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            code=st.sampled_from(codes),
            hostile=st.dictionaries(st.sampled_from(fields), TEXT, min_size=1, max_size=6),
            serialization=st.sampled_from([0, BINARY]),
        )
        def ask(code: int, hostile: dict[str, str], serialization: int) -> None:
            request = make_request(code, lambda field: hostile.get(field, sane(field)))
            request.serialization = serialization
            asker.ask_all([request])

        ask()


# --- requests that are no requests ---

WRONG_NUMBERS = ["", " ", "x", "-1", "1e9", "9" * 30, "0x10", "true", "1.5", "-9223372036854775808"]
WRONG_NUMBERS += ["2147483647", "9223372036854775807", "\u0663", "+7", "[]", "null", "NaN"]


def bodies_of_any_kind() -> dict[str, bytes]:
    noise = random.Random(5).randbytes(100_000)
    deep = b"[" * 50_000
    wide = b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(100_000)) + b"}"
    listed = b'{"mqSet":[' + b",".join([b"{}"] * 100_000) + b"]}"
    return {
        "none": b"",
        "noise": noise,
        "half a JSON": b'{"clientID":"a","consumerDataSet":[{',
        "deep JSON": deep,
        "wide JSON": wide,
        "long list": listed,
        "wrong JSON": b'{"clientID":[],"groupName":{},"mqSet":7,"topicConfigList":"x"}',
        "null": b"null",
        "number": b"1" * 100_000,
        "megabytes": b"a" * 5_000_000,
        "zeros": bytes(1_000_000),
    }


def test_every_code_answers_without_fields_and_whatever_the_body_is(
    tmp_path: Path, outside: Path
) -> None:
    with attacked(tmp_path) as (_broker, asker):
        for body in bodies_of_any_kind().values():
            for code in served_codes():
                (bare,) = asker.ask_all([Command(code, body=body)])
                assert bare.code >= 0
            asker.ask_all(
                [
                    Command(code, fields=make_request(code, sane).fields, body=body)
                    for code in served_codes()
                ]
            )


def test_every_code_answers_when_its_numbers_are_none(tmp_path: Path, outside: Path) -> None:
    with attacked(tmp_path) as (_broker, asker):
        for code in served_codes():
            good = make_request(code, sane)
            asker.ask_all(
                [
                    Command(code, fields={**good.fields, **dict.fromkeys(kinds, value)})
                    for kinds in (NUMBER_FIELDS, TRUTH_FIELDS)
                    for value in WRONG_NUMBERS
                ]
            )
            asker.ask_all(
                [
                    Command(code, fields={**good.fields, field: value}, body=good.body)
                    for field in NUMBER_FIELDS
                    for value in WRONG_NUMBERS[:10]
                ]
            )


def test_every_code_lives_through_one_way_requests_of_any_kind(
    tmp_path: Path, outside: Path
) -> None:
    """A one-way request never gets an answer; the next ordinary one does."""
    noise = random.Random(7)
    letters = string.printable + "ж\x00"
    with attacked(tmp_path) as (_broker, asker):
        for code in served_codes():
            requests = [
                Command(
                    code,
                    flag=2,
                    fields={field: "".join(noise.choices(letters, k=8)) for field in NAME_FIELDS},
                    body=noise.randbytes(200),
                )
                for _ in range(3)
            ]
            asker.client.send_bytes(b"".join(map(encode_command, requests)))
            (answer,) = asker.ask_all([send_request("After")])
            assert answer.code == 0
