from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_actors.testing import KafkaCluster, node


@pytest.fixture
def bindable(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Ports that the fake system refuses."""
    taken: set[int] = set()

    def bind(_socket: object, address: tuple[str, int]) -> None:
        if address[1] in taken:
            raise OSError("taken")

    monkeypatch.setattr("socket.socket.bind", bind)
    return taken


def test_ports_are_different_and_below_the_ephemeral_range(
    bindable: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "_lowest_ephemeral", lambda: 15_010)
    assert node.free_ports(10) == list(range(15_000, 15_010))


def test_a_port_that_somebody_listens_on_is_passed_over(
    bindable: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "_lowest_ephemeral", lambda: 15_004)
    bindable |= {15_000, 15_002}
    assert node.free_ports(2) == [15_001, 15_003]


def test_too_few_ports_is_an_error(bindable: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "_lowest_ephemeral", lambda: 15_001)
    with pytest.raises(OSError, match="no 2 free ports"):
        node.free_ports(2)


def test_the_ephemeral_range_is_the_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ip_local_port_range"
    file.write_text("20000\t60999\n")
    monkeypatch.setattr(node, "_EPHEMERAL_RANGE", file)
    assert node._lowest_ephemeral() == 20_000
    monkeypatch.setattr(node, "_EPHEMERAL_RANGE", tmp_path / "not-there")
    assert node._lowest_ephemeral() == 32_768


@pytest.mark.parametrize(
    "call", [lambda k: k.bootstrap_servers, lambda k: k.address(1), lambda k: k.bootstrap("TLS")]
)
def test_a_cluster_that_was_never_started_says_so(call: Callable[[KafkaCluster], object]) -> None:
    with pytest.raises(RuntimeError, match=r"no addresses yet: call start\(\)"):
        call(KafkaCluster(listeners={"TLS": "SSL"}))


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_internal_topics_survive_the_loss_of_a_broker_where_there_are_others(
    brokers: int, replicas: str, in_sync: str
) -> None:
    settings = node.broker_properties(brokers, (4, 1))
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        assert settings[f"{topic}.replication.factor"] == replicas
    assert settings["transaction.state.log.min.isr"] == in_sync


@pytest.mark.parametrize(("release", "there"), [((3, 9), False), ((4, 0), True), ((4, 1), True)])
def test_the_newer_group_protocol_is_on_where_it_is_no_preview(release: tuple[int, int], there: bool) -> None:
    assert ("group.coordinator.rebalance.protocols" in node.broker_properties(1, release)) is there
