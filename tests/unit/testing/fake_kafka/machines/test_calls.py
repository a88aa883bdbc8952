"""Rules by which tests take over single requests."""

from __future__ import annotations

from fakes.fake_wire import Wire, record_batch
from msgspec.structs import replace

from kafka_actors.protocol import (
    ApiKey,
    HeartbeatRequest,
    HeartbeatResponse,
    InitProducerIdRequest,
    MetadataRequest,
    ProduceRequest,
)
from kafka_actors.protocol.messages.produce import PartitionProduceData, TopicProduceData
from kafka_actors.testing.fake_kafka.machines.calls import (
    AnswerWith,
    AnswerWithError,
    BrokerCall,
    ChangeResponse,
    Delay,
    DropConnection,
    Hold,
    HoldResponse,
    LoseResponse,
    Repeat,
    RequestRule,
    RuleAction,
)

ASK = InitProducerIdRequest(transactional_id=None)


def ruled(
    action: RuleAction, api: ApiKey = ApiKey.INIT_PRODUCER_ID, **more: object
) -> tuple[Wire, RequestRule]:
    wire = Wire()
    rule = RequestRule(api, action, **more)  # type: ignore[arg-type]
    wire.cluster.rules.append(rule)
    return wire, rule


def test_an_error_for_so_many_requests_and_then_none() -> None:
    wire, rule = ruled(AnswerWithError(27), ApiKey.HEARTBEAT, times=2)
    codes = [wire.ask(HeartbeatRequest("g", 1, "m"), 4).error_code for _ in range(3)]
    assert codes == [27, 27, 25]
    assert len(rule.calls) == 2


def test_a_response_of_the_test_s_own() -> None:
    wire, _ = ruled(AnswerWith(lambda call: HeartbeatResponse(error_code=call.version)), ApiKey.HEARTBEAT)
    assert wire.ask(HeartbeatRequest("g", 1, "m"), 3).error_code == 3


def test_bytes_of_the_test_s_own_are_sent_as_they_are_and_the_connection_goes_on() -> None:
    wire, rule = ruled(AnswerWith(lambda call: b"HTTP/1.1"), ApiKey.HEARTBEAT)
    wire.send(HeartbeatRequest("g", 1, "m"), 3)
    assert wire.raw() == b"HTTP/1.1"
    wire._received["client"].clear()
    wire._asked["client"].clear()
    assert wire.ask(ASK, 4).producer_id == 0
    assert rule.calls[0].connection == 1
    assert rule.calls[0].client_host == "/client"


def test_a_response_is_changed_on_its_way_and_its_request_carried_out() -> None:
    wire, _ = ruled(ChangeResponse(lambda call, found: replace(found, producer_epoch=call.version)))
    changed = wire.ask(ASK, 4)
    assert (changed.producer_id, changed.producer_epoch) == (0, 4)
    assert wire.ask(ASK, 4).producer_id == 1


def test_a_call_is_answered_once() -> None:
    def twice(call: BrokerCall) -> HeartbeatResponse:
        call.respond(HeartbeatResponse(error_code=1))
        return HeartbeatResponse(error_code=2)

    wire, _ = ruled(AnswerWith(twice), ApiKey.HEARTBEAT)
    assert wire.ask(HeartbeatRequest("g", 1, "m"), 3).error_code == 1
    assert wire.raw() == b""


def test_a_held_request_is_not_carried_out_and_later_ones_of_its_connection_wait() -> None:
    wire, rule = ruled(Hold())
    assert wire.ask(ASK, 4) is None
    assert wire.ask(ASK, 4) is None
    assert wire.ask(ASK, 4, on="other").producer_id == 0
    rule.release()
    wire.poll()
    assert [wire.take().producer_id, wire.take().producer_id] == [1, 2]


def test_a_held_response_was_carried_out() -> None:
    wire, rule = ruled(HoldResponse())
    assert wire.ask(ASK, 4) is None
    assert wire.ask(ASK, 4, on="other").producer_id == 1
    rule.release()
    wire.poll()
    assert wire.take().producer_id == 0


def test_a_delayed_response_comes_later() -> None:
    wire, _ = ruled(Delay(2.0))
    assert wire.ask(ASK, 4) is None
    wire.pass_time(1.9)
    assert wire.take() is None
    wire.pass_time(0.2)
    assert wire.take().producer_id == 0


def test_a_connection_is_closed_before_or_after_the_request_was_carried_out() -> None:
    wire, _ = ruled(DropConnection())
    assert wire.ask(ASK, 4) is None
    assert wire.closed == {"client"}
    assert wire.ask(ASK, 4, on="other").producer_id == 0
    wire, _ = ruled(LoseResponse(6))
    assert wire.ask(ASK, 4) is None
    assert wire.closed == {"client"}
    assert len(wire.raw()) == 6
    assert wire.ask(ASK, 4, on="other").producer_id == 1


def test_a_response_comes_twice() -> None:
    wire, _ = ruled(Repeat())
    wire.send(ASK, 4)
    data = wire.raw()
    assert data[: len(data) // 2] == data[len(data) // 2 :]


def test_a_rule_is_for_one_broker_or_for_calls_that_fit() -> None:
    wire, rule = ruled(AnswerWithError(5), times=None, node_id=7)
    assert wire.ask(ASK, 4).error_code == 0
    rule.end()
    wire, rule = ruled(AnswerWithError(5), times=None, when=lambda call: call.client_id == "chosen")
    assert wire.ask(ASK, 4).error_code == 0
    assert wire.ask(ASK, 4, on="chosen").error_code == 5
    rule.end()
    assert wire.ask(ASK, 4, on="chosen").error_code == 0


def test_an_error_closes_the_connection_of_a_producer_that_wants_no_answer() -> None:
    wire = Wire(topics={"t": 1})
    wire.cluster.rules.append(RequestRule(ApiKey.PRODUCE, AnswerWithError(6)))
    data = PartitionProduceData(0, record_batch(b"v"))
    wire.send(ProduceRequest(acks=0, topic_data=[TopicProduceData("t", partition_data=[data])]), 9)
    assert wire.raw() == b""
    assert wire.closed == {"client"}


def test_the_first_rule_that_fits_decides() -> None:
    wire, _ = ruled(AnswerWithError(5))
    wire.cluster.rules.append(RequestRule(ApiKey.INIT_PRODUCER_ID, AnswerWithError(6)))
    assert [wire.ask(ASK, 4).error_code for _ in range(3)] == [5, 6, 0]
    assert wire.ask(MetadataRequest(), 9) is not None


def test_a_call_shows_what_it_is() -> None:
    wire, _ = ruled(Hold())
    wire.send(ASK, 4)
    assert "INIT_PRODUCER_ID 4, broker 1" in repr(wire.cluster.log[-1])
