"""Incremental fetch sessions."""

from __future__ import annotations

from random import Random

import pytest

from kafka_actors import errors
from kafka_actors.protocol import ZERO_UUID
from kafka_actors.protocol.messages.fetch import FetchPartition, PartitionData
from kafka_actors.testing.fake_kafka.machines.cluster_state import ClusterState
from kafka_actors.testing.fake_kafka.machines.error_answers import Refused
from kafka_actors.testing.fake_kafka.machines.fetch_sessions import (
    BrokerFetchSessions,
    FetchContext,
    PartitionKey,
)
from kafka_actors.testing.fake_kafka.machines.settings import FakeBrokerSettings

A, B = ("a", ZERO_UUID, 0), ("b", ZERO_UUID, 0)


class Sessions:
    def __init__(self, slots: int = 10) -> None:
        settings = FakeBrokerSettings(max_incremental_fetch_session_cache_slots=slots)
        self.state = ClusterState((4, 1), settings, Random(1), 0)
        self.sessions = BrokerFetchSessions(self.state)

    def context(
        self, session_id: int, epoch: int, *keys: PartitionKey, forget: PartitionKey | None = None
    ) -> FetchContext:
        wanted = {key: FetchPartition(0) for key in keys}
        return self.sessions.context(session_id, epoch, wanted, [forget] if forget else [], uses_ids=False)

    def told(
        self,
        context: FetchContext,
        high_watermark: int = 5,
        records: bytes = b"",
        error: int = 0,
        start: int = 0,
    ) -> tuple[int, list[PartitionKey]]:
        data = [
            (
                key,
                PartitionData(
                    0, error, high_watermark, log_start_offset=start, records=records if key == A else b""
                ),
            )
            for key in context.wanted
        ]
        session_id, told = context.finish(data)
        return session_id, [key for key, _ in told]


def test_a_session_tells_only_what_is_new() -> None:
    s = Sessions()
    session, told = s.told(s.context(0, 0, A, B))
    assert session > 0
    assert told == [A, B]
    assert s.told(s.context(session, 1)) == (session, [])
    assert s.told(s.context(session, 2), high_watermark=6) == (session, [A, B])
    assert s.told(s.context(session, 3), high_watermark=6, records=b"r") == (session, [A])
    assert s.told(s.context(session, 4), high_watermark=6, start=1) == (session, [B, A])
    assert list(s.context(session, 5).wanted) == [B, A], "who had records is read last"


def test_an_error_is_told_each_time_and_the_partition_again_when_it_is_over() -> None:
    s = Sessions()
    session, _ = s.told(s.context(0, 0, A))
    assert s.told(s.context(session, 1), error=6) == (session, [A])
    assert s.told(s.context(session, 2), error=6) == (session, [A])
    assert s.told(s.context(session, 3)) == (session, [A])
    assert s.told(s.context(session, 4)) == (session, [])


def test_partitions_are_added_and_forgotten_and_the_last_one_ends_the_session() -> None:
    s = Sessions()
    session, _ = s.told(s.context(0, 0, A))
    assert list(s.context(session, 1, B).wanted) == [A, B]
    assert list(s.context(session, 2, forget=A).wanted) == [B]
    assert s.told(s.context(session, 3, forget=B)) == (0, [])
    assert len(s.sessions) == 0


@pytest.mark.parametrize(
    ("change", "error"),
    [((1, 0), errors.FetchSessionIdNotFoundError), ((0, 1), errors.InvalidFetchSessionEpochError)],
)
def test_sessions_and_epochs_that_are_not_known(
    change: tuple[int, int], error: type[errors.KafkaError]
) -> None:
    s = Sessions()
    session, _ = s.told(s.context(0, 0, A))
    with pytest.raises(Refused) as refused:
        s.context(session + change[0], 1 + change[1])
    assert refused.value.code == error.code


def test_a_session_by_names_is_not_one_by_ids() -> None:
    s = Sessions()
    session, _ = s.told(s.context(0, 0, A))
    with pytest.raises(Refused) as refused:
        s.sessions.context(session, 1, {}, [], uses_ids=True)
    assert refused.value.code == errors.FetchSessionTopicIdError.code


def test_full_requests_close_the_session_that_they_name_and_epoch_minus_1_opens_none() -> None:
    s = Sessions()
    session, _ = s.told(s.context(0, 0, A))
    assert s.told(s.context(session, -1, A)) == (0, [A])
    assert len(s.sessions) == 0
    session, _ = s.told(s.context(0, 0, A))
    other, _ = s.told(s.context(session, 0, A))
    assert len(s.sessions) == 1
    assert other != session


def test_a_request_that_came_meanwhile_makes_the_earlier_one_an_error() -> None:
    s = Sessions()
    session, _ = s.told(s.context(0, 0, A))
    earlier = s.context(session, 1)
    s.context(session, 2)
    with pytest.raises(Refused) as refused:
        s.told(earlier)
    assert refused.value.code == errors.InvalidFetchSessionEpochError.code


def test_without_room_there_is_no_session_but_old_ones_go_after_two_minutes() -> None:
    s = Sessions(slots=1)
    session, _ = s.told(s.context(0, 0, A))
    s.state.now = 120.0
    assert s.told(s.context(0, 0, B))[0] == 0
    s.state.now = 120.1
    assert s.told(s.context(0, 0, B))[0] not in (0, session)
