"""Gauges are read from sources that come and go."""

from fakes.telemetry import exported

from kafka_actors.telemetry.gauges import Gauges
from kafka_actors.telemetry.instruments import (
    LAG,
    WORKERS,
)
from kafka_actors.telemetry.tally import TallyPoint


def test_gauges_come_and_go_with_their_sources(reader, meter):
    now = [0.0]
    gauges = Gauges(meter, clock=lambda: now[0])
    where = (("group", "g"), ("topic", "t"), ("partition", 0))
    forget = gauges.register(lambda: [TallyPoint(LAG.name, where, 7), TallyPoint(WORKERS.name, (), 2)])
    failing = gauges.register(lambda: 1 / 0)
    read = exported(reader)
    ((attributes, point),) = read["kafka.consumer_group.lag"]
    assert (attributes, point.value) == ({"group": "g", "topic": "t", "partition": 0}, 7)
    assert read["kafka_actors.workers"][0][1].value == 2
    failing()
    forget()
    assert exported(reader) == {}
    gauges.register(lambda: [TallyPoint(LAG.name, where, 8)])
    assert exported(reader)["kafka.consumer_group.lag"][0][1].value == 8


def test_one_look_at_a_source_answers_all_instruments_of_a_collection(reader, meter):
    looks = []
    now = [0.0]
    gauges = Gauges(meter, clock=lambda: now[0])
    gauges.register(lambda: looks.append(1) or [TallyPoint(LAG.name, (), 1), TallyPoint(WORKERS.name, (), 1)])
    reader.get_metrics_data()
    assert len(looks) == 1
    now[0] += 1
    reader.get_metrics_data()
    assert len(looks) == 2
