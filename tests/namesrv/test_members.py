"""To whom a broker's entry belongs: strangers neither take nor remove it, its broker comes back."""

import pytest

from orbitmq.errors import RequestFailed
from orbitmq.namesrv.members import CONNECTIONS_PER_MEMBER_MAX, Source
from orbitmq.namesrv.routes import RouteTable
from orbitmq.wire.codes import ResponseCode
from tests.namesrv.registering import (
    MASTER,
    OTHER,
    SLAVE,
    header,
    heartbeat,
    query,
    registration,
    source,
    topic,
    unregister,
    version,
)

EVIL = header(address="10.6.6.6:10911")


def owned() -> tuple[RouteTable, Source]:
    """A table with a broker, and where that comes from."""
    table, owner = RouteTable(), source()
    table.register(registration(), owner, 0.0)
    return table, owner


def addresses(table: RouteTable) -> dict[int, str]:
    return table.member_group("C1", "broker-a").broker_addrs


def test_a_stranger_cannot_take_over_a_live_broker_s_name_and_id() -> None:
    table, _ = owned()
    with pytest.raises(RequestFailed) as failure:
        table.register(registration(topic("T1", 99), head=EVIL), source("10.6.6.6"), 1.0)
    assert failure.value.code == ResponseCode.NO_PERMISSION
    assert MASTER in failure.value.remark
    assert "120 s" in failure.value.remark
    assert addresses(table) == {0: MASTER}


def test_a_stranger_cannot_speak_with_the_broker_s_own_address_from_another_host() -> None:
    table, _ = owned()
    stranger = source("10.6.6.6")
    changed = registration(topic("T1", 99), data_version=version(9))
    with pytest.raises(RequestFailed):
        table.register(changed, stranger, 1.0)
    assert not table.refresh(heartbeat(header()), stranger, 100.0)
    assert not table.refresh(query(header()), stranger, 100.0)
    assert len(table.expire(121.0)) == 1


def test_a_stranger_on_the_same_host_cannot_take_the_id_with_another_address() -> None:
    table, owner = owned()
    with pytest.raises(RequestFailed):
        table.register(registration(head=header(address="10.0.0.1:1")), source(owner.host), 1.0)


@pytest.mark.parametrize("host", ["10.6.6.6", "10.0.0.1"])
def test_only_its_own_connection_unregisters_a_broker(host: str) -> None:
    table, owner = owned()
    with pytest.raises(RequestFailed) as failure:
        table.unregister(unregister(header()), source(host))
    assert failure.value.code == ResponseCode.NO_PERMISSION
    assert table.unregister(unregister(EVIL), source(host)) is None
    assert addresses(table) == {0: MASTER}
    assert table.unregister(unregister(header()), owner) is not None


def test_a_broker_that_restarted_comes_back_before_its_old_connection_is_found_dead() -> None:
    table, old = owned()
    new = source(old.host)
    answer = table.register(registration(), new, 5.0)
    assert not answer.is_new
    assert table.connection_closed(old.connection) == []
    assert addresses(table) == {0: MASTER}
    assert len(table.connection_closed(new.connection)) == 1


def test_a_broker_that_restarted_with_another_address_comes_back_once_the_old_one_is_gone() -> None:
    table, old = owned()
    moved = registration(head=header(address=OTHER))
    with pytest.raises(RequestFailed):
        table.register(moved, source("10.0.0.9"), 5.0)
    table.connection_closed(old.connection)
    table.register(moved, source("10.0.0.9"), 6.0)
    assert addresses(table) == {0: OTHER}


def test_a_silent_owner_gives_way_when_it_expires() -> None:
    table, _ = owned()
    table.expire(120.1)
    table.register(registration(head=EVIL), source("10.6.6.6"), 121.0)
    assert addresses(table) == {0: EVIL.broker_addr}


def test_its_own_connection_may_move_a_broker_to_another_address() -> None:
    table, owner = owned()
    table.register(registration(head=header(address=OTHER)), owner, 1.0)
    assert addresses(table) == {0: OTHER}
    assert table.broker_count == 1


def test_an_address_has_one_id_so_a_slave_becomes_master() -> None:
    table, slave = RouteTable(), source("10.0.0.2")
    table.register(registration(head=header(address=SLAVE, broker_id=3)), slave, 0.0)
    assert table.route("T1") is None
    table.register(registration(head=header(address=SLAVE, broker_id=0)), slave, 1.0)
    assert addresses(table) == {0: SLAVE}
    assert table.route("T1") is not None


def test_a_slave_does_not_take_the_master_s_id_from_a_live_master() -> None:
    table, _ = owned()
    slave = source("10.0.0.2")
    table.register(registration(head=header(address=SLAVE, broker_id=1)), slave, 0.0)
    with pytest.raises(RequestFailed):
        table.register(registration(head=header(address=SLAVE, broker_id=0)), slave, 1.0)
    assert addresses(table) == {0: MASTER, 1: SLAVE}


def test_with_a_controller_the_higher_state_version_wins_the_master_s_id() -> None:
    table = RouteTable()
    table.register(registration(data_version=version(state=4)), source(), 0.0)
    later = registration(head=header(address=SLAVE), data_version=version(state=5))
    earlier = registration(head=header(address=OTHER), data_version=version(state=4))
    table.register(later, source("10.0.0.2"), 1.0)
    assert addresses(table) == {0: SLAVE}
    with pytest.raises(RequestFailed):
        table.register(earlier, source("10.0.0.9"), 2.0)


def test_a_name_stays_in_its_cluster_while_another_member_is_there() -> None:
    table, owner = owned()
    slave = source("10.0.0.2")
    head = header(address=SLAVE, broker_id=1, cluster="C2")
    with pytest.raises(RequestFailed, match="belongs to cluster C1"):
        table.register(registration(head=head), slave, 0.0)
    table.register(registration(head=header(cluster="C2")), owner, 1.0)
    assert table.cluster_info().cluster_addr_table == {"C2": ["broker-a"]}


def test_one_connection_may_hold_several_brokers() -> None:
    table, owner = owned()
    table.register(registration(head=header("broker-b", OTHER)), owner, 0.0)
    assert table.broker_count == 2
    table.unregister(unregister(header()), owner)
    assert not table.owns_nothing(owner.connection)
    assert len(table.connection_closed(owner.connection)) == 1
    assert table.owns_nothing(owner.connection)


def test_the_connections_of_one_broker_are_bounded_and_the_oldest_is_forgotten() -> None:
    table, first = owned()
    others = [source(first.host) for _ in range(CONNECTIONS_PER_MEMBER_MAX)]
    for one in others:
        table.register(registration(), one, 1.0)
    assert table.owns_nothing(first.connection)
    assert not table.owns_nothing(others[0].connection)
