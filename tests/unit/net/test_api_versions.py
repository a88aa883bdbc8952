"""Versions that both sides speak."""

from __future__ import annotations

import pytest

from kafka_actors.errors import (
    CorrelationIdError,
    DecodeError,
    UnknownServerError,
    UnrecognizedBrokerVersion,
    UnsupportedVersionError,
)
from kafka_actors.net.machines.api_versions import ApiVersionTable, handshake, retry_version
from kafka_actors.protocol import (
    ApiKey,
    ApiVersionsResponse,
    FetchRequest,
    JoinGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
    decode,
    decode_header,
    encode,
    peek_request,
    response_frame,
)
from kafka_actors.protocol.messages.api_versions import ApiVersion, FinalizedFeatureKey


def of(*ranges: tuple[int, int, int]) -> ApiVersionTable:
    return ApiVersionTable.of(ApiVersionsResponse(api_keys=[ApiVersion(*r) for r in ranges]))


def test_the_newest_common_version_is_picked() -> None:
    table = of((ApiKey.FETCH, 4, 11), (ApiKey.METADATA, 0, 99))
    assert table.pick(FetchRequest) == 11
    assert table.pick(MetadataRequest) == MetadataRequest.latest
    assert table.pick(FetchRequest, highest=10) == 10


@pytest.mark.parametrize(
    ("finalised", "end_txn", "limit", "version"),
    [
        (2, 5, None, 2),
        (1, 5, None, 1),  # upgraded brokers, whose cluster hasn't finalised it
        (None, 5, None, 0),
        (2, 4, None, 1),
        (2, 5, (3, 9), 1),  # api_version
        (2, None, None, 0),
    ],
)
def test_the_version_of_transactions_is_that_which_the_cluster_has_finalised(
    finalised: int | None, end_txn: int | None, limit: tuple[int, int] | None, version: int
) -> None:
    keys = [ApiVersion(ApiKey.FETCH, 4, 18)]
    keys += [] if end_txn is None else [ApiVersion(ApiKey.END_TXN, 0, end_txn)]
    features = [] if finalised is None else [FinalizedFeatureKey("transaction.version", finalised, 0)]
    response = ApiVersionsResponse(
        api_keys=keys, finalized_features=features, finalized_features_epoch=7 if features else -1
    )
    table = ApiVersionTable.of(response, limit)
    assert table.transaction_version() == version
    assert table.features_epoch == (7 if features else -1)


def test_a_version_that_is_not_stable_is_never_picked() -> None:
    assert of((ApiKey.FETCH, 4, 11), (ApiKey.OFFSET_COMMIT, 2, 10)).pick(OffsetCommitRequest) == 9


def test_no_common_version_names_both_ranges() -> None:
    with pytest.raises(UnsupportedVersionError, match="the broker speaks Fetch 4 to 11, 12 to 18 is needed"):
        of((ApiKey.FETCH, 4, 11)).pick(FetchRequest, lowest=12)


def test_a_broker_too_new_for_us_is_refused() -> None:
    table = of((ApiKey.FETCH, 90, 99), (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 5))
    with pytest.raises(UnsupportedVersionError):
        table.pick(FetchRequest)


def test_an_api_that_the_broker_lacks_is_named() -> None:
    with pytest.raises(UnsupportedVersionError, match="the broker has no Metadata"):
        of((ApiKey.FETCH, 4, 11)).pick(MetadataRequest)


@pytest.mark.parametrize(
    ("ranges", "version"),
    [
        ([(ApiKey.FETCH, 0, 10), (ApiKey.METADATA, 0, 7)], (2, 1)),
        ([(ApiKey.FETCH, 0, 11), (ApiKey.METADATA, 0, 9)], (2, 4)),
        ([(ApiKey.FETCH, 0, 12), (ApiKey.METADATA, 0, 11)], (2, 8)),
        ([(ApiKey.FETCH, 0, 17), (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 0)], (3, 9)),
        ([(ApiKey.FETCH, 4, 17), (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1)], (4, 0)),
        ([(ApiKey.FETCH, 4, 18), (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1)], (4, 1)),
    ],
)
def test_the_release_of_a_broker(ranges: list[tuple[int, int, int]], version: tuple[int, int]) -> None:
    assert of(*ranges).broker_version() == version


@pytest.mark.parametrize("ranges", [[], [(ApiKey.FETCH, 0, 9), (ApiKey.METADATA, 0, 6)], [(999, 0, 1)]])
def test_what_is_older_than_2_1_is_unrecognized(ranges: list[tuple[int, int, int]]) -> None:
    with pytest.raises(UnrecognizedBrokerVersion, match=r"no Kafka broker of version 2\.1 or newer"):
        of(*ranges)


def test_api_versions_is_tried_again_as_the_broker_says() -> None:
    named = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(ApiKey.API_VERSIONS, 0, 3)])
    assert retry_version(named, tried=4) == 3
    assert retry_version(ApiVersionsResponse(error_code=35), tried=4) == 0


def test_a_broker_that_names_the_version_it_refused_is_asked_in_version_0() -> None:
    named = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(ApiKey.API_VERSIONS, 0, 4)])
    assert retry_version(named, tried=4) == 0


def test_librdkafkas_mock_is_not_believed_and_kafka_is() -> None:
    mock = of(
        (ApiKey.FETCH, 0, 16),
        (ApiKey.METADATA, 0, 13),
        (ApiKey.API_VERSIONS, 0, 2),
        (ApiKey.JOIN_GROUP, 0, 6),
    )
    assert (mock.pick(MetadataRequest), mock.pick(JoinGroupRequest), mock.pick(FetchRequest)) == (8, 5, 11)
    kafka = of((ApiKey.FETCH, 4, 17), (ApiKey.METADATA, 0, 13), (ApiKey.API_VERSIONS, 0, 4))
    assert kafka.pick(MetadataRequest) == 13
    old = of(
        (ApiKey.FETCH, 0, 10), (ApiKey.METADATA, 0, 7), (ApiKey.API_VERSIONS, 0, 2), (ApiKey.JOIN_GROUP, 0, 3)
    )
    assert old.pick(MetadataRequest) == 7


# ---------------------------------------------------------------- the handshake


KNOWN = ApiVersionsResponse(api_keys=[ApiVersion(ApiKey.FETCH, 4, 12)])


def answer(frame: bytes, response: ApiVersionsResponse, version: int | None = None, shift: int = 0) -> bytes:
    _, asked, correlation_id = peek_request(frame[4:])
    if version is None:
        return response_frame(ApiKey.API_VERSIONS, asked, correlation_id + shift, response)[4:]
    return (correlation_id + shift).to_bytes(4, "big") + encode(response, version)


def finish(steps, data: bytes) -> ApiVersionTable:
    with pytest.raises(StopIteration) as done:
        steps.send(data)
    return done.value.value


def test_a_broker_that_knows_our_version_is_asked_once() -> None:
    steps = handshake("me")
    first = next(steps)
    header, body = decode_header(ApiKey.API_VERSIONS, 4, "request", first[4:])
    assert header.client_id == "me"
    assert decode(ApiKey.API_VERSIONS, 4, "request", body).client_software_name == "kafka-actors"
    assert finish(steps, answer(first, KNOWN)).ranges == {1: (4, 12)}


@pytest.mark.parametrize(("named", "then"), [((0, 3), 3), ((0, 2), 2), (None, 0)])
def test_an_older_broker_answers_in_version_0_and_is_asked_again(named, then: int) -> None:
    steps = handshake("me")
    first = next(steps)
    keys = [] if named is None else [ApiVersion(ApiKey.API_VERSIONS, *named)]
    second = steps.send(answer(first, ApiVersionsResponse(error_code=35, api_keys=keys), version=0))
    assert peek_request(second[4:])[1] == then
    assert finish(steps, answer(second, KNOWN)).ranges == {1: (4, 12)}


def test_a_broker_that_refuses_version_0_too_is_not_asked_for_ever() -> None:
    steps = handshake("me")
    refused = ApiVersionsResponse(error_code=35)
    second = steps.send(answer(next(steps), refused, version=0))
    with pytest.raises(Exception, match="UNSUPPORTED_VERSION"):
        steps.send(answer(second, refused, version=0))


def test_another_error_is_raised() -> None:
    steps = handshake("me")
    with pytest.raises(UnknownServerError):
        steps.send(answer(next(steps), ApiVersionsResponse(error_code=-1)))


def test_a_wrong_correlation_id_is_no_broker() -> None:
    steps = handshake("me")
    with pytest.raises(CorrelationIdError, match="no Kafka broker"):
        steps.send(answer(next(steps), KNOWN, shift=1))


def test_garbage_is_a_named_error() -> None:
    steps = handshake("me")
    next(steps)
    with pytest.raises(DecodeError):
        steps.send(b"\x00\x00\x00\x00garbage")


def test_a_broker_that_is_too_old() -> None:
    steps = handshake("me")
    old = ApiVersionsResponse(api_keys=[ApiVersion(ApiKey.FETCH, 0, 8)])
    with pytest.raises(UnrecognizedBrokerVersion):
        steps.send(answer(next(steps), old))
