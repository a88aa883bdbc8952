import pytest

from kafka_actors.testing.broker_properties import broker_properties


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_internal_topics_survive_the_loss_of_a_broker_where_there_are_others(
    brokers: int, replicas: str, in_sync: str
) -> None:
    settings = broker_properties(brokers, (4, 1))
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        assert settings[f"{topic}.replication.factor"] == replicas
    assert settings["transaction.state.log.min.isr"] == in_sync


@pytest.mark.parametrize(("release", "there"), [((3, 9), False), ((4, 0), True), ((4, 1), True)])
def test_the_newer_group_protocol_is_on_where_it_is_no_preview(release: tuple[int, int], there: bool) -> None:
    assert ("group.coordinator.rebalance.protocols" in broker_properties(1, release)) is there
