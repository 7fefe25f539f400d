"""Original brokers, clients and the official mqadmin against the name server under test.

Brokers 4.9.7 and 5.5.0 register with it and, at the same time, with an original name server. What
the official tool then prints must be the same on both sides, and right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.foreign.accounts import assert_accounted, assert_all_accepted, events
from tests.foreign.admin_steps import (
    CHANGING_STEPS,
    READING_STEPS,
    READING_STEPS_5,
    Transcript,
    error_codes,
    normal_form,
    route,
    run_side_by_side,
    settings,
    table,
)
from tests.foreign.asking import await_broker_gone, await_topic
from tests.foreign.judged import namesrv_under_test
from tests.foreign.peers import Line, java_probe, original_broker, original_namesrv

pytestmark = pytest.mark.foreign

REFERENCE = "4.9.7"
BROKERS = {"broker-4": "4.9.7", "broker-5": "5.5.0"}
COUNT = 100
# What a script that reads the original's settings may look for, whatever server it talks to.
SETTINGS_EXPECTED = {
    "clusterTest",
    "configStorePath",
    "kvConfigPath",
    "listenPort",
    "orderMessageEnable",
    "productEnvName",
}
# These depend on the installation or, for the list as a whole, on the network library.
STEPS_WITHOUT_TWIN = {"settings before", "settings after", "settings at the end"}
Names = Callable[[str], str]


@dataclass(frozen=True)
class Registered:
    """Two name servers and the two brokers that have registered with both."""

    judged: str
    reference: str
    addresses: Mapping[str, str]


@dataclass(frozen=True)
class Trip:
    """Topics that the Java client has used through the judged name server, and what it saw."""

    topic: str
    doomed: tuple[str, str]
    lines: list[Line]


@dataclass(frozen=True)
class Comparison:
    """What mqadmin printed against the judged name server and against the original one."""

    judged: Transcript
    reference: Transcript
    sides: tuple[dict[str, str], dict[str, str]]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with namesrv_under_test(tmp_path_factory.mktemp("namesrv")) as namesrv:
        yield namesrv


@pytest.fixture(scope="module")
def registered(judged: str) -> Iterator[Registered]:
    with original_namesrv(REFERENCE) as reference:
        both = f"{judged};{reference.namesrv}"
        # Two ways to register: whole and compressed, or only after asking for the data version.
        compressed = {"compressedRegister": "true"}
        by_version = {"forceRegister": "false", "registerNameServerPeriod": "10000"}
        with (
            original_broker("4.9.7", both, brokerName="broker-4", **compressed) as four,
            original_broker("5.5.0", both, brokerName="broker-5", **by_version) as five,
        ):
            addresses = {"broker-4": four.broker, "broker-5": five.broker}
            yield Registered(judged, reference.namesrv, addresses)


@pytest.fixture(scope="module")
def trip(registered: Registered, fresh_name: Names) -> Trip:
    topic, doomed = fresh_name("trip"), (fresh_name("doomed"), fresh_name("doomed"))
    namesrv = registered.judged
    send = ["send", namesrv, topic, str(COUNT), f"body={topic}"]
    consume = ["consume", namesrv, topic, f"{topic}_group", str(COUNT), "90"]
    doom = [word for name in doomed for word in ("--", "send", namesrv, name, "1")]
    lines = java_probe("4.9.7", *send, "--", *consume, *doom, "--", "route", namesrv, topic)
    made = {(line["topic"], line["brokerName"]) for line in events(lines, "sent")}
    # A broker that registers its newest topic later than that gives a wiped permission back.
    made |= {(f"%RETRY%{topic}_group", broker_name) for broker_name in BROKERS}
    for name, broker_name in made:
        for address in (registered.judged, registered.reference):
            await_topic(address, name, broker_name)
    return Trip(topic, doomed, lines)


def compare(
    registered: Registered, trip: Trip, version: str, steps: Mapping[str, str]
) -> Comparison:
    addresses = (registered.judged, registered.reference)
    first, second = (
        {"namesrv": address, "topic": trip.topic, "doomed": doomed}
        for address, doomed in zip(addresses, trip.doomed, strict=True)
    )
    judged, reference = run_side_by_side(version, steps, (first, second))
    return Comparison(judged, reference, (first, second))


@pytest.fixture(scope="module")
def admin5(registered: Registered, trip: Trip) -> Comparison:
    steps = {step: READING_STEPS[step] for step in READING_STEPS_5}
    return compare(registered, trip, "5.5.0", steps)


@pytest.fixture(scope="module")
def admin4(registered: Registered, trip: Trip, admin5: Comparison) -> Comparison:
    # After the other tool, for its last steps delete a topic of each side.
    assert admin5.judged
    return compare(registered, trip, "4.9.7", {**READING_STEPS, **CHANGING_STEPS})


def test_java_client_sends_and_consumes_through_it_at_both_brokers(trip: Trip) -> None:
    assert events(trip.lines, "error") == []
    sent = [line for line in events(trip.lines, "sent") if line["topic"] == trip.topic]
    assert_all_accepted(sent, trip.topic, COUNT)
    assert_accounted(sent, events(trip.lines, "received"))
    assert {line["brokerName"] for line in sent} == set(BROKERS)


def test_java_client_reads_the_route_of_both_brokers(trip: Trip, registered: Registered) -> None:
    (found,) = events(trip.lines, "route")
    assert {queue["brokerName"]: queue["perm"] for queue in found["queues"]} == {
        "broker-4": 6,
        "broker-5": 6,
    }
    assert {broker["brokerName"]: broker["addresses"] for broker in found["brokers"]} == {
        name: {"0": address} for name, address in registered.addresses.items()
    }


@pytest.mark.parametrize("step", [*READING_STEPS, *CHANGING_STEPS])
@pytest.mark.nightly("clients")
def test_mqadmin_4_prints_what_the_original_makes_it_print(admin4: Comparison, step: str) -> None:
    if step in STEPS_WITHOUT_TWIN:
        assert settings(admin4.judged[step]).keys() >= SETTINGS_EXPECTED
        return
    judged, reference = admin4.sides
    got = normal_form(step, admin4.judged[step], judged)
    assert got == normal_form(step, admin4.reference[step], reference), admin4.judged[step].err


@pytest.mark.parametrize("step", READING_STEPS_5)
@pytest.mark.nightly("clients")
def test_mqadmin_5_prints_what_the_original_makes_it_print(admin5: Comparison, step: str) -> None:
    judged, reference = admin5.sides
    got = normal_form(step, admin5.judged[step], judged)
    assert got == normal_form(step, admin5.reference[step], reference), admin5.judged[step].err


@pytest.mark.nightly("clients")
def test_mqadmin_lists_brokers_with_address_and_version(
    admin4: Comparison, registered: Registered
) -> None:
    rows = {row[1]: row for row in table(admin4.judged["cluster list"])}
    for name, version in BROKERS.items():
        expected = ["DefaultCluster", name, "0", registered.addresses[name]]
        assert rows[name][:5] == [*expected, f"V{version.replace('.', '_')}"]


@pytest.mark.nightly("clients")
def test_mqadmin_lists_topics_and_their_groups(admin4: Comparison, trip: Trip) -> None:
    names = admin4.judged["topic list"].out.split()
    assert {trip.topic, *trip.doomed, f"%RETRY%{trip.topic}_group", "TBW102"} <= set(names)
    assert len(names) == len(set(names))
    groups = table(admin4.judged["topic list by cluster"])
    assert ["DefaultCluster", trip.topic, f"{trip.topic}_group"] in groups


@pytest.mark.nightly("clients")
def test_unknown_topic_has_no_route_and_the_answer_names_it(admin4: Comparison) -> None:
    unknown = admin4.judged["route of an unknown topic"]
    assert error_codes(unknown) == [17]
    assert "no_such_topic" in unknown.err


@pytest.mark.nightly("clients")
def test_order_configuration_is_kept_and_shown_in_the_route_when_switched_on(
    admin4: Comparison, trip: Trip
) -> None:
    steps = admin4.judged
    order = "broker-4:4;broker-5:4"
    assert error_codes(steps["order of none"]) == [22]
    assert f"topic=[{trip.topic}], orderConf=[{order}]" in steps["order after put"].out
    assert "orderTopicConf" not in route(steps["route with order off"])
    assert route(steps["route with order on"])["orderTopicConf"] == order
    assert error_codes(steps["order after delete"]) == [22]


@pytest.mark.nightly("clients")
def test_key_value_configuration_is_put_replaced_and_deleted(admin4: Comparison) -> None:
    steps = admin4.judged
    assert "orderConf=[some_value]" in steps["kv after put"].out
    assert "orderConf=[other_value]" in steps["kv after second put"].out
    assert error_codes(steps["kv after delete"]) == [22]
    assert "success" in steps["delete absent kv"].out


@pytest.mark.nightly("clients")
def test_changed_setting_shows_and_a_path_cannot_be_changed(
    admin4: Comparison, registered: Registered
) -> None:
    steps = admin4.judged
    before = settings(steps["settings before"])
    assert before["orderMessageEnable"] == "false"
    assert registered.judged.endswith(f":{before['listenPort']}")
    assert settings(steps["settings after"]) == {**before, "orderMessageEnable": "true"}
    assert error_codes(steps["set a path"]) == [16]
    assert settings(steps["settings at the end"]) == before


@pytest.mark.nightly("clients")
def test_wiped_write_permission_leaves_reading_and_comes_back(admin4: Comparison) -> None:
    def permissions(step: str) -> dict[str, str]:
        rows = table(admin4.judged[step])
        return {row[1]: row[-1] for row in rows if row[0] == "DefaultCluster"}

    assert permissions("route after wipe") == {"broker-4": "4", "broker-5": "6"}
    assert permissions("route after add") == {"broker-4": "6", "broker-5": "6"}


@pytest.mark.nightly("clients")
def test_deleted_topic_has_no_route(admin4: Comparison) -> None:
    assert admin4.judged["delete topic"].err == ""
    assert error_codes(admin4.judged["route after topic delete"]) == [17]


def test_stopped_broker_is_forgotten_at_once(judged: str) -> None:
    with original_broker("4.9.7", judged, brokerName="broker-leaving"):
        pass
    # Long before the 120 s after which a silent broker is dropped.
    await_broker_gone(judged, "broker-leaving", limit_s=10)
