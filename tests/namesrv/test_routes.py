"""The route table with values and a hand clock: what is registered is what is looked up."""

import msgspec
import pytest

from orbitmq.errors import RequestFailed
from orbitmq.namesrv.route_limits import RouteLimits
from orbitmq.namesrv.routes import RegistrationRequest, RouteTable
from orbitmq.wire.bodies_namesrv import DataVersion, QueueData, TopicConfig, TopicRoute
from tests.namesrv.registering import (
    MASTER,
    OTHER,
    SLAVE,
    TWO,
    body,
    header,
    heartbeat,
    query,
    registration,
    source,
    topic,
    unregister,
    version,
)


def table_with(*registrations: RegistrationRequest) -> RouteTable:
    table = RouteTable()
    for one in registrations:
        table.register(one, source(one.header.broker_addr.split(":")[0]), 0.0)
    return table


def route_of(table: RouteTable, name: str) -> TopicRoute:
    route = table.route(name)
    assert route is not None
    return route


def perm_of(table: RouteTable, name: str) -> int:
    return route_of(table, name).queue_datas[0].perm


def names(table: RouteTable) -> set[str]:
    return set(table.topics().topic_list)


# --- registration (B-040 to B-049) ---


def test_a_registered_broker_is_in_cluster_group_and_route() -> None:
    table = table_with(registration(topic("T1", 4, 6, 2), topic("TBW102", 8, 7)))
    info = table.cluster_info()
    assert info.cluster_addr_table == {"C1": ["broker-a"]}
    assert info.broker_addr_table["broker-a"].broker_addrs == {0: MASTER}
    route = route_of(table, "T1")
    assert route.queue_datas == [
        QueueData(
            broker_name="broker-a",
            read_queue_count=4,
            write_queue_count=4,
            perm=6,
            topic_sys_flag=2,
        )
    ]
    assert route.broker_datas == [info.broker_addr_table["broker-a"]]
    assert perm_of(table, "TBW102") == 7


def test_a_slave_never_changes_topics() -> None:
    table = table_with(registration(*TWO))
    slave = header(address=SLAVE, broker_id=1)
    news = registration(
        topic("T1", 16), topic("SlaveOnly"), head=slave, data_version=version(counter=9)
    )
    table.register(news, source("10.0.0.2"), 0.0)
    assert table.route("SlaveOnly") is None
    assert route_of(table, "T1").queue_datas[0].read_queue_count == 4
    assert route_of(table, "T1").broker_datas[0].broker_addrs == {0: MASTER, 1: SLAVE}


def test_a_slave_is_told_its_master_and_a_master_nothing() -> None:
    table = RouteTable()
    slave = registration(head=header(address=SLAVE, broker_id=1))
    assert table.register(slave, source("10.0.0.2"), 0.0).master_address is None
    answer = table.register(registration(), source(), 0.0)
    assert (answer.master_address, answer.master_ha_address) == (None, None)
    answer = table.register(slave, source("10.0.0.2"), 1.0)
    assert (answer.master_address, answer.master_ha_address) == (MASTER, "ha-" + MASTER)


def test_topics_change_only_with_the_data_version() -> None:
    table, here = RouteTable(), source()
    table.register(registration(*TWO), here, 0.0)
    table.register(registration(topic("T1", 16), topic("T2")), here, 1.0)
    assert route_of(table, "T1").queue_datas[0].read_queue_count == 4
    changed = registration(topic("T1", 16), topic("T2"), data_version=version(counter=2))
    table.register(changed, here, 2.0)
    assert route_of(table, "T1").queue_datas[0].read_queue_count == 16


@pytest.mark.parametrize(
    ("news", "is_changed"),
    [
        (version(1, 1), False),
        (version(2, 1), True),
        (version(1, 2), True),
        (version(1, 1, 3), True),
    ],
)
def test_a_version_is_new_when_counter_time_or_state_differ(
    news: DataVersion, is_changed: bool
) -> None:
    table, here = RouteTable(), source()
    table.register(registration(*TWO), here, 0.0)
    table.register(registration(topic("T1", 9), topic("T2"), data_version=news), here, 1.0)
    assert (route_of(table, "T1").queue_datas[0].read_queue_count == 9) is is_changed


def test_missing_topics_stay_unless_dropping_is_asked_for() -> None:
    table, here = RouteTable(), source()
    table.register(registration(topic("T1"), topic("T2"), topic("T3")), here, 0.0)
    less = registration(topic("T1"), topic("T2"), data_version=version(2))
    table.register(less, here, 1.0)
    assert names(table) == {"T1", "T2", "T3"}
    even_less = registration(topic("T1"), topic("T4"), data_version=version(3), drops_missing=True)
    table.register(even_less, here, 2.0)
    assert names(table) == {"T1", "T4"}


def test_one_topic_alone_never_drops_the_others() -> None:
    table, here = RouteTable(), source()
    table.register(registration(*TWO), here, 0.0)
    one = registration(topic("T3"), data_version=version(2), drops_missing=True)
    table.register(one, here, 1.0)
    assert names(table) == {"T1", "T2", "T3"}


def test_changes_of_one_topic_that_overtake_each_other_are_mended_by_the_next_whole_table() -> None:
    """Seen on 5.5.0: two quick updates left the older one in the route for 40 s and more."""
    table, here = RouteTable(), source()
    table.register(registration(*TWO), here, 0.0)
    newer = registration(topic("T1", 12), data_version=version(3, 30))
    older = registration(topic("T1", 11), data_version=version(2, 20))
    table.register(newer, here, 1.0)
    table.register(older, here, 1.1)
    whole = registration(topic("T1", 12), topic("T2", 8), data_version=version(3, 30))
    table.register(whole, here, 30.0)
    assert route_of(table, "T1").queue_datas[0].read_queue_count == 12


def test_a_late_change_of_one_topic_is_skipped() -> None:
    table, here = RouteTable(), source()
    whole = registration(topic("T1", 12), topic("T2"), data_version=version(3, 30))
    table.register(whole, here, 0.0)
    table.register(registration(topic("T1", 11), data_version=version(2, 20)), here, 0.1)
    assert route_of(table, "T1").queue_datas[0].read_queue_count == 12


def test_one_topic_as_a_first_word_does_not_hide_the_whole_table() -> None:
    """A name server that restarts may hear of one change before it hears of everything."""
    table, here = RouteTable(), source()
    table.register(registration(topic("T3"), data_version=version(5)), here, 0.0)
    assert table.data_version(query(header())) is None
    table.register(registration(*TWO, topic("T3"), data_version=version(5)), here, 1.0)
    assert names(table) == {"T1", "T2", "T3"}


def test_a_master_that_comes_back_brings_its_topics_again() -> None:
    table, first = RouteTable(), source()
    slave = registration(head=header(address=SLAVE, broker_id=1))
    table.register(registration(*TWO), first, 0.0)
    table.register(slave, source("10.0.0.2"), 0.0)
    table.delete_topic("T2", None, 0.0)
    table.connection_closed(first.connection)
    assert route_of(table, "T1").broker_datas[0].broker_addrs == {1: SLAVE}
    table.register(registration(*TWO), source(), 1.0)
    assert names(table) == {"T1", "T2"}


def test_filter_servers_are_shown_with_their_broker_and_leave_with_it() -> None:
    table, here = RouteTable(), source()
    table.register(registration(filters=("10.0.0.1:1", "10.0.0.1:2")), here, 0.0)
    assert route_of(table, "T1").filter_server_table == {MASTER: ["10.0.0.1:1", "10.0.0.1:2"]}
    silent = registration()
    nothing_said = msgspec.structs.replace(silent.body, filter_server_list=None)
    table.register(silent._replace(body=nothing_said), here, 1.0)
    assert route_of(table, "T1").filter_server_table == {MASTER: ["10.0.0.1:1", "10.0.0.1:2"]}
    table.register(registration(filters=()), here, 2.0)
    assert route_of(table, "T1").filter_server_table == {}


def test_each_registration_renews_what_is_kept_of_its_broker() -> None:
    table, here = RouteTable(), source()
    table.register(registration(filters=("10.0.0.1:1",)), here, 0.0)
    uneven = topic("T1", read_queue_count=4, write_queue_count=2)
    again = registration(uneven, topic("T2"), head=header(ha="10.0.0.1:7"), data_version=version(2))
    filters = msgspec.structs.replace(again.body, filter_server_list=["10.0.0.1:2"])
    table.register(again._replace(body=filters), here, 1.0)
    slave = registration(head=header(address=SLAVE, broker_id=1))
    assert table.register(slave, source("10.0.0.2"), 2.0).master_ha_address == "10.0.0.1:7"
    assert table.data_version(query(header())) == version(2)
    route = route_of(table, "T1")
    assert route.filter_server_table == {MASTER: ["10.0.0.1:2"]}
    assert (route.queue_datas[0].read_queue_count, route.queue_datas[0].write_queue_count) == (4, 2)


def test_5x_extras_are_kept_as_data() -> None:
    table = RouteTable()
    mapping = {"topic": "T1", "bname": "broker-a", "totalQueues": 8, "currIdMap": {"0": 0}}
    one = RegistrationRequest(
        header(enable_acting_master=True), body(*TWO, mappings={"T1": mapping}), "zone-1"
    )
    table.register(one, source(), 0.0)
    route = route_of(table, "T1")
    assert route.broker_datas[0].enable_acting_master is True
    assert route.broker_datas[0].zone_name == "zone-1"
    assert route.topic_queue_mapping_by_broker == {"broker-a": mapping}
    assert route_of(table, "T2").topic_queue_mapping_by_broker is None


def test_two_brokers_of_a_topic_are_both_in_its_route() -> None:
    table = table_with(
        registration(*TWO),
        registration(topic("T1", 8), topic("X"), head=header("broker-b", OTHER, cluster="C2")),
    )
    route = route_of(table, "T1")
    assert [queues.broker_name for queues in route.queue_datas] == ["broker-a", "broker-b"]
    assert [queues.write_queue_count for queues in route.queue_datas] == [4, 8]
    assert [data.cluster for data in route.broker_datas] == ["C1", "C2"]


# --- removal (B-050 to B-053) ---


def test_a_broker_silent_for_120_s_leaves_and_not_earlier() -> None:
    table, here = RouteTable(), source()
    table.register(registration(*TWO), here, 1_000.0)
    assert table.expire(1_120.0) == []
    (departure,) = table.expire(1_120.1)
    assert departure.member.address == MASTER
    assert departure.connections == (here.connection,)
    assert (table.broker_count, table.topic_count) == (0, 0)
    assert table.cluster_info().cluster_addr_table == {}


def test_each_sign_of_life_counts_anew() -> None:
    table, here = RouteTable(), source()
    table.register(registration(*TWO), here, 0.0)
    table.register(registration(*TWO), here, 100.0)
    assert table.refresh(heartbeat(header()), here, 200.0)
    assert table.refresh(query(header()), here, 300.0)
    assert table.expire(420.0) == []
    assert len(table.expire(420.1)) == 1


@pytest.mark.parametrize(
    ("asked_ms", "expiry_s"), [(10_000, 10.0), (1, 5.0), (99_999_999, 3_600.0)]
)
def test_a_5x_broker_chooses_its_time_within_bounds(asked_ms: int, expiry_s: float) -> None:
    table = table_with(registration(head=header(heartbeat_timeout_ms=asked_ms)))
    assert table.expire(expiry_s) == []
    assert len(table.expire(expiry_s + 0.1)) == 1


def test_a_closed_connection_takes_its_brokers_along_at_once() -> None:
    table, here, there = RouteTable(), source(), source("10.0.0.9")
    table.register(registration(*TWO), here, 0.0)
    table.register(registration(head=header("broker-b", OTHER)), there, 0.0)
    departures = table.connection_closed(here.connection)
    assert [departure.group.name for departure in departures] == ["broker-a"]
    assert list(table.cluster_info().broker_addr_table) == ["broker-b"]
    assert table.connection_closed(here.connection) == []


def test_when_a_slave_goes_the_topics_stay_and_with_the_last_member_they_go() -> None:
    table, here, there = RouteTable(), source(), source("10.0.0.2")
    table.register(registration(*TWO), here, 0.0)
    table.register(registration(head=header(address=SLAVE, broker_id=1)), there, 0.0)
    table.connection_closed(there.connection)
    assert names(table) == {"T1", "T2"}
    table.connection_closed(here.connection)
    assert names(table) == set()


def test_a_broker_unregisters_itself() -> None:
    table, here = RouteTable(), source()
    table.register(registration(*TWO), here, 0.0)
    departure = table.unregister(unregister(header()), here)
    assert departure is not None
    assert departure.is_last
    assert table.broker_count == 0
    assert table.unregister(unregister(header()), here) is None


@pytest.mark.parametrize("is_silent", [True, False])
def test_silence_and_goodbye_clean_up_alike(is_silent: bool) -> None:
    table, here = RouteTable(), source()
    table.register(registration(filters=("10.0.0.1:1",)), here, 0.0)
    table.register(registration(topic("T1"), head=header("broker-b", OTHER)), source(), 60.0)
    assert table.cluster_info().cluster_addr_table == {"C1": ["broker-a", "broker-b"]}
    gone = table.expire(121.0) if is_silent else [table.unregister(unregister(header()), here)]
    assert [departure and departure.member.address for departure in gone] == [MASTER]
    assert table.cluster_info().cluster_addr_table == {"C1": ["broker-b"]}
    assert [queues.broker_name for queues in route_of(table, "T1").queue_datas] == ["broker-b"]
    assert names(table) == {"T1"}
    back = registration()
    silent_on_filters = msgspec.structs.replace(back.body, filter_server_list=None)
    table.register(back._replace(body=silent_on_filters), source(), 122.0)
    assert route_of(table, "T1").filter_server_table == {}


def test_a_topic_is_never_listed_without_a_broker() -> None:
    table, here = RouteTable(), source()
    table.register(registration(*TWO), here, 0.0)
    table.register(registration(topic("T1"), topic("X"), head=header("broker-b", OTHER)), here, 0.0)
    table.unregister(unregister(header()), here)
    assert names(table) == {"T1", "X"}
    table.connection_closed(here.connection)
    assert names(table) == set()


# --- administration ---


def test_wiping_takes_the_write_bit_and_adding_sets_six() -> None:
    table = table_with(registration(topic("T1", perm=6), topic("T2", perm=7), topic("T3", perm=4)))
    assert table.wipe_write_perm("broker-a") == 3
    assert [perm_of(table, name) for name in ("T1", "T2", "T3")] == [4, 5, 4]
    assert table.add_write_perm("broker-a") == 3
    assert [perm_of(table, name) for name in ("T1", "T2", "T3")] == [6, 6, 6]
    assert (table.wipe_write_perm("nobody"), table.add_write_perm("nobody")) == (0, 0)


def test_wiped_permission_lasts_until_a_newer_data_version() -> None:
    table, here = RouteTable(), source()
    table.register(registration(*TWO), here, 0.0)
    table.wipe_write_perm("broker-a")
    table.register(registration(*TWO), here, 30.0)
    assert perm_of(table, "T1") == 4
    table.register(registration(*TWO, data_version=version(2)), here, 60.0)
    assert perm_of(table, "T1") == 6


def test_a_topic_is_deleted_in_one_cluster_or_in_all() -> None:
    table = table_with(
        registration(*TWO),
        registration(*TWO, head=header("broker-b", OTHER, cluster="C2")),
    )
    assert table.delete_topic("T1", "C1", 0.0) == 1
    assert [queues.broker_name for queues in route_of(table, "T1").queue_datas] == ["broker-b"]
    assert table.delete_topic("T1", "C9", 0.0) == 0
    assert table.delete_topic("T1", None, 0.0) == 1
    assert table.route("T1") is None
    assert table.delete_topic("T1", None, 0.0) == 0


def test_a_5x_broker_registers_one_topic_of_its_own_brokers_only() -> None:
    table, here = RouteTable(), source()
    table.register(registration(*TWO), here, 0.0)
    mine = QueueData(broker_name="broker-a", read_queue_count=3, write_queue_count=3, perm=6)
    table.register_topic("New", [mine], here)
    assert route_of(table, "New").queue_datas == [mine]
    with pytest.raises(RequestFailed, match="only a broker itself"):
        table.register_topic("Evil", [mine], source("10.6.6.6"))
    nobody = QueueData(broker_name="nobody", read_queue_count=3, write_queue_count=3, perm=6)
    with pytest.raises(RequestFailed, match="broker nobody is not registered"):
        table.register_topic("Half", [mine, nobody], here)
    assert table.route("Half") is None


# --- lookups ---


def test_lists_of_topics() -> None:
    table = table_with(
        registration(topic("U", flag=1), topic("S", flag=2), topic("US", flag=3), topic("N")),
        registration(topic("N"), topic("X"), head=header("broker-b", OTHER, cluster="C2")),
    )
    assert names(table) == {"U", "S", "US", "N", "X"}
    assert set(table.topics_of_cluster("C2").topic_list) == {"N", "X"}
    assert table.topics_of_cluster("C9").topic_list == []
    assert table.topics_with_flags(1).topic_list == ["U", "US"]
    assert table.topics_with_flags(2).topic_list == ["S", "US"]
    assert table.topics_with_flags(2, unwanted=1).topic_list == ["S"]
    system = table.system_topics()
    assert system.topic_list == ["C1", "broker-a", "C2", "broker-b"]
    assert system.broker_addr == MASTER
    assert RouteTable().system_topics().broker_addr is None


def test_member_group() -> None:
    table = table_with(registration(), registration(head=header(address=SLAVE, broker_id=1)))
    assert table.member_group("C1", "broker-a").broker_addrs == {0: MASTER, 1: SLAVE}
    assert table.member_group("C1", "nobody").broker_addrs == {}
    assert table.member_group("C9", "broker-a").broker_addrs == {}


def test_no_route_says_why_and_what_to_do() -> None:
    table, here = RouteTable(), source()
    assert "No broker is registered here" in table.why_no_route("T9", 0.0)
    table.register(registration(*TWO), here, 0.0)
    closed = table.why_no_route("T9", 0.0)
    assert "No registered broker (broker-a) has this topic" in closed
    assert "autoCreateTopicEnable=false" in closed
    table.register(registration(*TWO, topic("TBW102"), data_version=version(2)), here, 0.0)
    assert "autoCreateTopicEnable=true" in table.why_no_route("T9", 0.0)
    table.delete_topic("T1", None, 100.0)
    assert "deleted here 7 s ago" in table.why_no_route("T1", 107.0)
    table.register(registration(topic("T1"), data_version=version(3)), here, 0.0)
    table.delete_topic("T1", "C1", 0.0)
    assert "deleted" in table.why_no_route("T1", 0.0)


# --- limits ---


@pytest.mark.parametrize(
    ("wrong", "allowed"),
    [
        (topic("Bad", queues=-1), "readQueueNums -1, allowed 0 to 65536"),
        (
            topic("Bad", write_queue_count=2**31 - 1),
            "writeQueueNums 2147483647, allowed 0 to 65536",
        ),
        (topic("Bad", perm=999), "perm 999, allowed 0 to 15"),
        (topic("Bad", perm=-1), "perm -1, allowed 0 to 15"),
    ],
)
def test_impossible_topics_are_refused_alone_with_the_allowed_range(
    wrong: TopicConfig, allowed: str
) -> None:
    table = RouteTable()
    answer = table.register(registration(topic("Good"), wrong), source(), 0.0)
    assert len(answer.topics.refused) == 1
    assert allowed in answer.topics.refused[0]
    assert names(table) == {"Good"}
    assert allowed in table.why_no_route("Bad", 0.0)


@pytest.mark.parametrize("name", ["", "a" * 256, "a\nb", " a", "a\x00", "a\x1b[31m"])
def test_names_that_cannot_stand_in_a_log_are_refused(name: str) -> None:
    table = RouteTable()
    answer = table.register(registration(topic("Good"), topic(name)), source(), 0.0)
    assert len(answer.topics.refused) == 1
    assert answer.topics.refused[0].isprintable()
    assert len(answer.topics.refused[0]) < 300
    for wrong in (header(name=name), header(address=name), header(cluster=name)):
        with pytest.raises(RequestFailed) as failure:
            table.register(registration(head=wrong), source(), 0.0)
        assert failure.value.remark.isprintable()
    assert table.broker_count == 1


@pytest.mark.parametrize("name", ["../../etc/passwd", "a b", "ü%RETRY%|", "host.example.org"])
def test_other_names_are_data(name: str) -> None:
    table = table_with(registration(topic(name), topic("T"), head=header(name=name)))
    assert route_of(table, name).broker_datas[0].broker_name == name


def test_the_number_of_brokers_topics_and_routes_is_bounded() -> None:
    table = RouteTable(RouteLimits(brokers_max=2, topics_max=3, routes_max=4))
    table.register(registration(topic("T1"), topic("T2"), topic("T3")), source(), 0.0)
    answer = table.register(
        registration(topic("T1"), topic("T2"), topic("T9"), head=header("broker-b", OTHER)),
        source(),
        0.0,
    )
    assert ["topicsMax" in text or "routesMax" in text for text in answer.topics.refused] == [
        True,
        True,
    ]
    assert table.topic_count == 3
    with pytest.raises(RequestFailed, match="brokersMax"):
        table.register(registration(head=header("broker-c", SLAVE)), source(), 0.0)
    assert table.broker_count == 2
    assert not table.has_broker("broker-c")
    table.register(registration(*TWO), source(), 1.0)


def test_a_negative_broker_id_is_refused() -> None:
    with pytest.raises(RequestFailed, match="brokerId -1, allowed 0 to"):
        RouteTable().register(registration(head=header(broker_id=-1)), source(), 0.0)


def test_what_is_remembered_of_absent_topics_is_bounded() -> None:
    table, here = RouteTable(), source()
    for number in range(1_500):
        table.register(
            registration(topic(f"T{number}"), data_version=version(number + 1)), here, 0.0
        )
        table.delete_topic(f"T{number}", None, 0.0)
    assert "deleted" not in table.why_no_route("T0", 0.0)
    assert "deleted" in table.why_no_route("T1499", 0.0)
