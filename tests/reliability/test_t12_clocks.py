"""T12, clocks: the wall clock of a running broker jumps, stands, or runs at another speed; pauses.

Method: a broker process whose wall clock the test sets (its monotonic clock is untouched), or that
is stopped for seconds. Order, offsets and what was acknowledged do not depend on wall time; delayed
messages are neither lost nor doubled nor early by more than the jump; locks and members stay as
long as the monotonic clock says; times of records never go back in a queue; nothing is removed.
"""

import os
import signal
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from orbitmq.wire.record import Record, scan_records
from tests.behaviour.requests import heartbeat_body, pull_request, send_request
from tests.reliability.other_clock import VARIABLE, OtherClock
from tests.reliability.processes import BrokerProcess, broker_process, wait_until
from tests.wire_client import WireClient

IS_LONG = os.environ.get("ORBITMQ_TORTURE") == "long"
PAUSES_S = [1.5, 5.0, 60.0] if IS_LONG else [1.5]
SECOND_MS, HOUR_MS = 1_000, 3_600_000
DAY_MS = 24 * HOUR_MS
JUMPS_MS = [SECOND_MS, -SECOND_MS, HOUR_MS, -HOUR_MS, DAY_MS, -DAY_MS]
DELAY_S = 1.0
EARLY_S = 0.15
LATE_S = 6.0
SETTINGS = [
    *("-D", "messageDelayLevel=1s 30s", "-D", "mappedFileSizeCommitLog=131072"),
    *("-D", "mappedFileSizeConsumeQueue=2000", "-D", "maxMessageSize=16384"),
    *("-D", "deleteWhen=" + ";".join(f"{hour:02d}" for hour in range(24))),
    *("-D", "cleanResourceInterval=200", "-D", "cleanFileForciblyEnable=false"),
    *("-D", "flushConsumeQueueThoroughInterval=100", "-D", "flushIntervalConsumeQueue=10"),
]
ALL_AGES_STAY = ["-D", "fileReservedTime=720"]


class Load:
    """One client that sends plain and delayed messages and knows what must come of them."""

    def __init__(self, client: WireClient) -> None:
        self.client = client
        self.plain: list[bytes] = []
        self.delayed: dict[bytes, float] = {}
        """When each was sent, by the monotonic clock."""

    def send(self, count: int = 10) -> None:
        for _ in range(count):
            body = b"plain %d " % len(self.plain) + bytes(1_000)
            answer = self.client.call(send_request("Plain", body))
            assert answer.code == 0, answer.remark
            assert int(answer.fields["queueOffset"]) == len(self.plain), "numbers go on"
            self.plain.append(body)

    def send_delayed(self) -> bytes:
        body = b"delayed %d" % len(self.delayed)
        answer = self.client.call(send_request("Delayed", body, i="DELAY\x011\x02"))
        assert answer.code == 0, answer.remark
        self.delayed[body] = time.monotonic()
        return body

    def read(self, topic: str) -> list[Record]:
        records: list[Record] = []
        while True:
            answer = self.client.call(pull_request(topic, "Reader", len(records)))
            if answer.code != 0:
                assert answer.code == 19, answer.remark
                return records
            records += scan_records(answer.body)

    def delivered(self) -> list[bytes]:
        return [record.body for record in self.read("Delayed")]

    def wait_delivered(self, body: bytes, limit_s: float = LATE_S) -> float:
        """Wait until a delayed message is there; return how long after its sending."""
        wait_until(lambda: body in self.delivered(), limit_s)
        return time.monotonic() - self.delayed[body]

    def check(self) -> None:
        """All is there, once, in order, with times that never go back."""
        records = self.read("Plain")
        assert [record.body for record in records] == self.plain
        assert [record.queue_offset for record in records] == list(range(len(self.plain)))
        times_ms = [record.store_ms for record in records]
        assert times_ms == sorted(times_ms)
        found = [self._offset_at(at_ms) for at_ms in times_ms[:: len(times_ms) // 20 or 1]]
        assert found == sorted(found), "a later time is never at an earlier offset"
        assert self._offset_at(0) == 0
        if self.delayed:
            assert sorted(self.delivered()) == sorted(self.delayed), "each once"

    def _offset_at(self, at_ms: int) -> int:
        answer = self.client.ask(29, topic="Plain", queueId=0, timestamp=at_ms)
        return int(answer.fields["offset"])


def lock(client: WireClient, client_id: str) -> bool:
    """Whether the client holds the lock now."""
    queue = '{"topic":"Plain","brokerName":"b","queueId":0}'
    body = f'{{"clientId":"{client_id}","consumerGroup":"G","mqSet":[{queue}]}}'
    return b'"queueId"' in client.ask(41, body.encode()).body


def check_leases(client: WireClient) -> None:
    """Locks and members do not follow the wall clock."""
    assert lock(client, "holder")
    assert not lock(client, "other")
    assert b'"member"' in client.ask(38, consumerGroup="Members").body


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(150)
def test_a_wall_clock_that_jumps_or_drags_changes_no_order_and_loses_nothing(
    tmp_path: Path,
) -> None:
    clock = OtherClock(tmp_path / "clock")
    lateness: list[str] = []
    with (
        moved_broker(tmp_path, clock, *ALL_AGES_STAY) as broker,
        WireClient(broker.address) as client,
        WireClient(broker.address) as member,
    ):
        load = Load(client)
        assert member.ask(34, heartbeat_body("member", "Members", "Plain")).code == 0
        load.send()
        check_leases(client)
        for jump_ms in JUMPS_MS:
            before = load.send_delayed()
            clock.jump(jump_ms)
            after = load.send_delayed()
            load.send()
            check_leases(client)
            # Set back, the clock would keep it too long: it is delivered at once, as by 4.9.7.
            early_s = abs(jump_ms) / 1000
            assert load.wait_delivered(before) >= DELAY_S - early_s - EARLY_S
            took_s = load.wait_delivered(after)
            assert took_s >= DELAY_S - EARLY_S, "sent after the jump: waits as long as it should"
            lateness.append(f"{jump_ms / 1000:+g} s: {took_s:.2f}")
        check_speeds(load, clock)
        check_leases(client)
        load.check()
        assert client.ask(31, topic="Plain", queueId=0).fields["offset"] == "0"
        assert broker.odd_log_lines() == []
    print(f"T12 clocks: delays of 1 s after jumps: {', '.join(lateness)}")


def check_speeds(load: Load, clock: OtherClock) -> None:
    for speed in (0.5, 2.0):
        clock.run_at(speed)
        body = load.send_delayed()
        load.send()
        assert load.wait_delivered(body) >= DELAY_S / speed - EARLY_S
    clock.run_at(0.0)
    body = load.send_delayed()
    load.send(50)
    assert body not in load.delivered(), "its time has not come"
    clock.run_at(1.0)
    load.wait_delivered(body)


def moved_broker(
    tmp_path: Path, clock: OtherClock, *options: str
) -> AbstractContextManager[BrokerProcess]:
    """A broker whose wall clock is `clock`."""
    env = {VARIABLE: str(clock.path)}
    module = "tests.reliability.other_clock"
    return broker_process(tmp_path / "data", *SETTINGS, *options, module=module, env=env)


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(120)
@pytest.mark.parametrize("jump_ms", [-DAY_MS, DAY_MS])
def test_recovery_after_a_kill_does_not_ask_the_clock(tmp_path: Path, jump_ms: int) -> None:
    clock = OtherClock(tmp_path / "clock")
    plain: list[bytes] = []
    delayed: dict[bytes, float] = {}
    for _ in range(3):
        with (
            moved_broker(tmp_path, clock, *ALL_AGES_STAY) as broker,
            WireClient(broker.address) as client,
        ):
            load = Load(client)
            load.plain, load.delayed = plain, delayed
            load.send(40)
            clock.jump(jump_ms)
            load.send(40)
            load.send_delayed()
            broker.program.kill()
        clock.jump(-jump_ms // 2)
    with (
        moved_broker(tmp_path, clock, *ALL_AGES_STAY) as broker,
        WireClient(broker.address) as client,
    ):
        load = Load(client)
        load.plain, load.delayed = plain, delayed
        wait_until(lambda: len(load.delivered()) >= len(delayed), 10)
        load.send()
        load.check()


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(60)
def test_nothing_is_removed_by_a_clock_that_is_wrong_for_a_moment(tmp_path: Path) -> None:
    """A jump forward makes nothing old until a second look finds the same."""
    clock = OtherClock(tmp_path / "clock")
    slow = ["-D", "fileReservedTime=1", "-D", "cleanResourceInterval=2000"]
    with moved_broker(tmp_path, clock, *slow) as broker, WireClient(broker.address) as client:
        load = Load(client)
        load.send(500)
        for _ in range(2):
            clock.jump(DAY_MS)
            load.send(5)
            time_passes(broker, 1.5)  # one look falls in there, if any
            clock.jump(-DAY_MS)
            time_passes(broker, 2.2)
        load.check()
        clock.jump(DAY_MS)
        wait_until(lambda: client.ask(31, topic="Plain", queueId=0).fields["offset"] != "0")


def time_passes(broker: BrokerProcess, span_s: float) -> None:
    """Wait; the broker must live all the time."""
    end_s = time.monotonic() + span_s
    wait_until(lambda: time.monotonic() > end_s and broker.own_mib() > 0, span_s + 10)


# --- pauses ---


@pytest.mark.nightly("torture", short=True)
@pytest.mark.timeout(60 + 3 * max(PAUSES_S))
@pytest.mark.parametrize("pause_s", PAUSES_S)
def test_a_broker_that_was_stopped_for_a_while_goes_on_as_if_nothing_was(
    tmp_path: Path, pause_s: float
) -> None:
    with (
        broker_process(tmp_path / "data", *SETTINGS, *ALL_AGES_STAY) as broker,
        WireClient(broker.address) as client,
        WireClient(broker.address) as member,
    ):
        load = Load(client)
        load.send(20)
        assert member.ask(34, heartbeat_body("member", "Members", "Plain")).code == 0
        check_leases(client)
        held = pull_request("Plain", "Holder", 20, sysFlag=6, suspendTimeoutMillis=15_000)
        waiting = member.send(held)
        body = load.send_delayed()
        os.kill(broker.program.pid, signal.SIGSTOP)
        try:
            asked = client.send(send_request("Plain", b"while it stood"))
            threading.Event().wait(pause_s)
        finally:
            os.kill(broker.program.pid, signal.SIGCONT)
        assert client.receive_answer(asked).code == 0
        load.plain.append(b"while it stood")
        woken = member.receive_answer(waiting)
        assert [record.body for record in scan_records(woken.body)][:1] in ([], [b"while it stood"])
        start_s = time.monotonic()
        load.send()
        took_s = time.monotonic() - start_s
        late_s = max(0.0, load.wait_delivered(body) - max(DELAY_S, pause_s))
        check_leases(client)
        load.check()
    print(
        f"T12 pause of {pause_s:g} s: delayed message {late_s:.2f} s late, sends in {took_s:.2f} s"
    )
    assert late_s < 2
