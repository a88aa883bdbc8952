"""The instruments against the published conventions: semconv 1.44 as OpenTelemetry's own package has it."""

import re

import pytest
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from opentelemetry.semconv.schemas import Schemas

from kafka_actors.telemetry.instruments import BY_NAME, INSTRUMENTS, SCHEMA_URL, Instrument, InstrumentKind

SEMCONV = {
    "messaging.client.operation.duration": messaging_metrics.create_messaging_client_operation_duration,
    "messaging.client.sent.messages": messaging_metrics.create_messaging_client_sent_messages,
    "messaging.client.consumed.messages": messaging_metrics.create_messaging_client_consumed_messages,
    "messaging.process.duration": messaging_metrics.create_messaging_process_duration,
}
BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""`docs/messaging/messaging-metrics.md` of version 1.44, for both histograms."""
COMMON = {
    "messaging.operation.name",
    "messaging.system",
    "error.type",
    "messaging.destination.name",
    "messaging.destination.template",
    "server.address",
    "messaging.destination.partition.id",
    "server.port",
}
CONSUMER = {"messaging.consumer.group.name", "messaging.destination.subscription.name"}
ALLOWED = {
    "messaging.client.operation.duration": COMMON | CONSUMER | {"messaging.operation.type"},
    "messaging.client.sent.messages": COMMON,
    "messaging.client.consumed.messages": COMMON | CONSUMER,
    "messaging.process.duration": COMMON | CONSUMER,
}
"""The attribute tables of the same page."""
KAFKAMETRICS = {
    "kafka.consumer_group.lag": ("1", {"group", "topic", "partition"}),
    "kafka.consumer_group.lag_sum": ("1", {"group", "topic"}),
    "kafka.consumer_group.offset": ("1", {"group", "topic", "partition"}),
    "kafka.consumer_group.offset_sum": ("1", {"group", "topic"}),
    "kafka.consumer_group.members": ("{members}", {"group"}),
    "kafka.partition.current_offset": ("1", {"topic", "partition"}),
    "kafka.partition.oldest_offset": ("1", {"topic", "partition"}),
}
LABEL = {"group"}
"""On every series that a consumer or a job has: more than the conventions and the receiver ask for."""
"""`receiver/kafkametricsreceiver/metadata.yaml` of the collector; all are gauges but `members`, which is a sum that may fall."""
DEPRECATED = {
    "messaging.kafka.message.offset",
    "messaging.kafka.destination.partition",
    "messaging.kafka.consumer.group",
    "messaging.operation",
}


class Made:
    """A meter that says what it was asked for."""

    def __getattr__(self, kind):
        return lambda name, unit, description: (kind, name, unit, description)


def test_the_four_metrics_of_messaging_are_those_of_the_conventions():
    assert Schemas.V1_44_0.value == SCHEMA_URL
    assert {i.name for i in INSTRUMENTS if i.name.startswith("messaging.")} == SEMCONV.keys()
    for name, create in SEMCONV.items():
        mine = BY_NAME[name]
        assert create(Made()) == (f"create_{mine.kind.value}", name, mine.unit, mine.description)
        assert set(mine.attributes) <= ALLOWED[name] | LABEL
        if mine.kind is InstrumentKind.HISTOGRAM:
            assert mine.boundaries == BOUNDARIES


def test_lag_and_offsets_are_named_as_the_collector_names_them():
    mine = {i.name: (i.unit, set(i.attributes)) for i in INSTRUMENTS if i.name.startswith("kafka.")}
    assert mine == {name: (unit, attributes | LABEL) for name, (unit, attributes) in KAFKAMETRICS.items()}
    sums = {name for name in KAFKAMETRICS if BY_NAME[name].kind is InstrumentKind.UP_DOWN_COUNTER}
    assert sums == {"kafka.consumer_group.members"}
    assert {BY_NAME[name].kind for name in KAFKAMETRICS.keys() - sums} == {InstrumentKind.GAUGE}


def test_every_instrument_that_a_group_has_may_have_its_label():
    assert {i.name for i in INSTRUMENTS if not LABEL & set(i.attributes)} == {
        "messaging.client.sent.messages"
    }


def test_no_attribute_is_unknown_or_deprecated():
    modules = (messaging_attributes, error_attributes, server_attributes)
    known = {value for module in modules for value in vars(module).values() if isinstance(value, str)}
    for instrument in INSTRUMENTS:
        for attribute in instrument.attributes:
            assert attribute not in DEPRECATED
            assert attribute in known or "messaging" not in attribute


@pytest.mark.parametrize("instrument", INSTRUMENTS, ids=lambda i: i.name)
def test_instruments_are_well_formed(instrument: Instrument):
    # The syntax of names is the specification's; units are UCUM: what is counted is in braces, singular but for the collector.
    assert re.fullmatch(r"[a-z][a-z0-9_.]{0,254}", instrument.name)
    units = {"s", "By", "1", *(unit for unit, _ in KAFKAMETRICS.values())}
    assert instrument.unit in units or re.fullmatch(r"\{[a-z]+[^s]\}", instrument.unit)
    assert instrument.description
    assert bool(instrument.boundaries) == (
        instrument.kind in (InstrumentKind.HISTOGRAM, InstrumentKind.DISTRIBUTION)
    )
    assert list(instrument.boundaries) == sorted(set(instrument.boundaries))
    assert len(set(instrument.attributes)) == len(instrument.attributes)


def test_no_name_is_used_twice():
    assert len(BY_NAME) == len(INSTRUMENTS) > 25
