"""How a stream goes on from batch to batch: limits, new, lost and recreated topics, and a checkpoint's exact ranges."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_actors.errors import ConfigError, StartLostError, TopicRecreatedError
from kafka_actors.spark.source.machines.stream_offsets import (
    MinOffsetsDelay,
    ObservedPartitions,
    StreamOffsets,
    advance,
    backlog,
    capped,
    limited_to,
    losses,
    newcomers,
    out_of_reach,
    pending,
    ranges_between,
    started_late,
)
from kafka_actors.spark.source.stream_driver import offsets_behind
from kafka_actors.types import TopicPartition

OLD, NEW = b"o" * 16, b"n" * 16


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


def at(*offsets: int, topic_id: bytes | None = OLD, initial: bool = False) -> StreamOffsets:
    ids = {} if topic_id is None else {"t": topic_id}
    return StreamOffsets({tp(p): o for p, o in enumerate(offsets)}, ids, initial=initial)


def seen(
    *ends: int, topic_id: bytes | None = OLD, starts: dict[int, int] | None = None
) -> ObservedPartitions:
    ids = {} if topic_id is None else {"t": topic_id}
    return ObservedPartitions(
        {tp(p): end for p, end in enumerate(ends)}, ids, {tp(p): o for p, o in (starts or {}).items()}
    )


def bounds(start: StreamOffsets, end: StreamOffsets) -> list[tuple[int, int, int]]:
    return [(r.partition, r.start, r.end) for r in ranges_between(start, end)]


def through_checkpoint(offsets: StreamOffsets) -> StreamOffsets:
    return StreamOffsets.from_json(json.loads(json.dumps(offsets.to_json())))


# ---------------------------------------------------------------- the form


def test_offsets_have_sparks_form_with_ours_beside_it() -> None:
    plain = StreamOffsets({tp(10): 5, tp(9): 7, tp(0, "a"): 1})
    assert json.dumps(plain.to_json()) == '{"a": {"0": 1}, "t": {"9": 7, "10": 5}}'
    assert at(3).to_json() == {"t": {"0": 3}, "@topic_ids": {"t": OLD.hex()}}


offsets_of_partitions = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b-c", "d.e"]), st.integers(0, 11)),
    st.integers(0, 2**62),
)


@given(offsets_of_partitions, st.none() | offsets_of_partitions, st.booleans())
def test_offsets_survive_the_checkpoint(
    found: dict[TopicPartition, int], start: dict[TopicPartition, int] | None, initial: bool
) -> None:
    offsets = StreamOffsets(found, {topic: OLD for topic, _ in found}, start, initial)
    again = through_checkpoint(offsets)
    assert again == offsets
    assert json.dumps(again.to_json()) == json.dumps(offsets.to_json())


@pytest.mark.parametrize(
    "foreign", [{"t": 5}, {"index": "x"}, {"t": {"zero": 1}}, {"t": {"0": 1}, "@topic_ids": {"t": "xyz"}}]
)
def test_another_sources_offsets_are_refused(foreign: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"^checkpointLocation: has offsets that are not this source's"):
        StreamOffsets.from_json(foreign)


# ---------------------------------------------------------------- going on


def test_all_that_there_is_is_the_next_batch() -> None:
    end = advance(at(5, 5), seen(7, 5))
    assert bounds(at(5, 5), end) == [(0, 5, 7)]


def test_nothing_new_is_the_same_value() -> None:
    base = at(5, 5)
    assert advance(base, seen(5, 5)) is base


def test_the_first_batch_keeps_its_start_for_a_query_that_crashed() -> None:
    end = through_checkpoint(advance(at(5, initial=True), seen(9)))
    asked_again = at(12, initial=True)  # the latest offset has moved meanwhile
    assert bounds(asked_again, end) == [(0, 5, 9)]
    assert losses(asked_again, end) == []
    following = advance(end, seen(15))
    assert bounds(end, following) == [(0, 9, 15)]
    assert following.start is None


def test_the_first_batch_is_one_even_without_records() -> None:
    first = at(5, initial=True)
    end = advance(first, seen(5))
    assert not end.initial
    assert bounds(first, end) == []


def test_a_new_partition_starts_at_its_first_record() -> None:
    base = at(5)
    found = seen(5, 3, starts={1: 0})
    end = advance(base, found)
    assert bounds(base, end) == [(1, 0, 3)]
    assert losses(base, end) == started_late(base, found) == []


def test_a_new_partition_whose_first_records_are_gone_is_a_loss() -> None:
    [loss] = started_late(at(5), seen(5, 9, starts={1: 4}))
    assert str(loss) == "t-1 at offset 0: the partition is new to the stream, and its log starts at 4"


def test_a_topic_made_anew_is_read_from_its_start_and_named() -> None:
    base = at(50, 50)
    now = seen(3, topic_id=NEW, starts={0: 0})
    assert newcomers(base, now) == {tp(0)}
    end = advance(base, now)
    assert bounds(base, end) == [(0, 0, 3)]
    assert ranges_between(base, end)[0].topic_id == NEW
    found = losses(base, end)
    assert [type(loss) for loss in found] == [TopicRecreatedError] * 2
    assert losses(end, advance(end, seen(8, topic_id=NEW))) == []


def test_a_topic_out_of_sight_is_a_loss_but_not_forgotten() -> None:
    base = StreamOffsets({tp(0): 5, tp(0, "u"): 8}, {"t": OLD, "u": OLD})
    only_t = ObservedPartitions({tp(0): 6}, {"t": OLD})
    end = advance(base, only_t)
    assert end.by_partition == {tp(0): 6, tp(0, "u"): 8}
    assert [str(loss) for loss in losses(base, end, [tp(0, "u")])] == [
        "u-0 at offset 8: the topic is gone, or is no longer read"
    ]
    back = ObservedPartitions({tp(0): 6, tp(0, "u"): 9}, {"t": OLD, "u": OLD})
    assert [(r.topic, r.start, r.end) for r in ranges_between(end, advance(end, back))] == [("u", 8, 9)]
    unselected = advance(base, only_t, selects=lambda which: which.topic == "t")
    assert unselected.by_partition == {tp(0): 6}
    assert len(losses(base, unselected)) == 1


def test_a_partition_that_is_gone_is_a_loss() -> None:
    base = at(5, 5, topic_id=None)
    end = advance(base, seen(6, topic_id=None))
    assert [str(loss) for loss in losses(base, end)] == [
        "t-1 at offset 5: the partition is gone, or is no longer read"
    ]


def test_a_log_that_was_cut_is_a_loss_and_read_on_from_its_end() -> None:
    base = at(9)
    end = advance(base, seen(4))
    assert [str(loss) for loss in losses(base, end)] == [
        "t-0 at offset 9: the log ends at 4: it was truncated"
    ]
    assert bounds(base, end) == []
    assert bounds(end, advance(end, seen(6))) == [(0, 4, 6)]


def test_available_now_ends_where_the_logs_did() -> None:
    base, target = at(0), {tp(0): 10}
    sizes = []
    while (end := advance(base, capped(seen(1_000, 5), target), max_offsets=4)) is not base:
        sizes += [r.size for r in ranges_between(base, end)]
        base = end
    assert sizes == [4, 4, 2]


# ---------------------------------------------------------------- limits


def test_a_limit_is_shared_by_backlog_as_spark_does() -> None:
    end = advance(at(0, 0, 0, 7), seen(900, 90, 1, 7), max_offsets=100)
    assert [r.size for r in ranges_between(at(0, 0, 0, 7), end)] == [90, 9, 1]


sizes = st.lists(st.integers(0, 10**12), min_size=1, max_size=8)


@given(sizes, st.integers(1, 10**9))
def test_a_limit_starves_nobody_and_loses_nothing(backlogs: list[int], limit: int) -> None:
    base = at(*[7] * len(backlogs))
    now = seen(*(7 + size for size in backlogs))
    end = advance(base, now, max_offsets=limit)
    taken = {r.partition: r.size for r in ranges_between(base, end)}
    waiting = {p for p, size in enumerate(backlogs) if size}
    assert set(taken) == waiting
    assert all(taken[p] <= backlogs[p] for p in taken)
    assert sum(taken.values()) <= max(limit, min(sum(backlogs), len(waiting) + limit))
    assert pending(end, now) == pending(base, now) - sum(taken.values())


@given(sizes, st.integers(1, 10**6))
def test_batches_add_up_to_the_backlog(backlogs: list[int], limit: int) -> None:
    backlogs = [size % 1_000 for size in backlogs]
    base, now = at(*[3] * len(backlogs)), seen(*(3 + size for size in backlogs))
    covered: dict[int, int] = dict.fromkeys(range(len(backlogs)), 3)
    while (end := advance(base, now, max_offsets=limit)) is not base:
        for partition, start, until in bounds(base, through_checkpoint(end)):
            assert covered[partition] == start
            covered[partition] = until
        base = end
    assert covered == {p: 3 + size for p, size in enumerate(backlogs)}


def test_a_new_partitions_backlog_begins_where_its_log_does() -> None:
    assert backlog(at(5), seen(6, 100, starts={1: 90})) == {tp(0): (5, 6), tp(1): (90, 100)}


def test_a_batch_waits_for_enough_but_not_for_ever() -> None:
    hold = MinOffsetsDelay(10, 60.0)
    assert not hold.holds(0, 100.0)  # the first isn't held back, as in Spark
    assert hold.holds(9, 101.0)
    assert not hold.holds(10, 102.0)
    assert hold.holds(9, 161.9)
    assert not hold.holds(9, 162.0)
    assert not MinOffsetsDelay(None, 60.0).holds(0, 0.0)


def test_how_far_behind_has_the_names_of_sparks_metrics() -> None:
    assert offsets_behind({tp(0): 10, tp(1): 4, tp(2): 3}, {tp(0): 5, tp(1): 4}) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "5",
        "avgOffsetsBehindLatest": str(8 / 3),
    }
    assert offsets_behind({}, {}) == {}


# ---------------------------------------------------------------- given ends


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1),
    st.integers(1, 5),
)
def test_a_stream_with_given_ends_ends_exactly_there(logs: list[tuple[int, int, int]], limit: int) -> None:
    """A start, what is left of it to the end, and what came since."""
    ends = at(*(start + left for start, left, _ in logs))
    seen_now = seen(*(start + left + more for start, left, more in logs), 99)  # and a partition that is new
    base = limited_to(at(*(start for start, _, _ in logs), 50, initial=True), ends, {})
    assert base.by_partition.keys() == ends.by_partition.keys()
    read = 0
    for _ in range(sum(left for _, left, _ in logs) + 1):
        assert out_of_reach(base, seen_now, ends) == []
        end = advance(base, capped(seen_now, ends.by_partition), max_offsets=limit)
        if end is base:
            break
        assert losses(base, end) == []
        read += sum(until - start for _, start, until in bounds(base, end))
        base = through_checkpoint(end)
    assert (base.by_partition, base.topic_ids) == (ends.by_partition, ends.topic_ids)
    assert read == sum(left for _, left, _ in logs)


def test_what_keeps_a_stream_from_its_ends_is_named() -> None:
    [short] = out_of_reach(at(3, 3), seen(9, 7), at(8, 8))
    assert str(short) == "t-1 at offset 3: the log ends at 7, before 8"
    [gone] = out_of_reach(at(3, 3), seen(9), at(8, 8))
    assert str(gone) == "t-1 at offset 3: the partition is gone before its end, 8"
    [anew] = out_of_reach(at(3), seen(9, topic_id=NEW), at(8))
    assert isinstance(anew, TopicRecreatedError)
    [late] = out_of_reach(at(12, initial=True), seen(20), at(8))
    assert isinstance(late, StartLostError)
    assert (late.offset, late.log_start_offset, late.lost) == (8, 12, 4)
    [past] = out_of_reach(at(12), seen(20), at(8))
    assert str(past) == "t-0 at offset 12: is behind the end of the stream, 8"
    assert out_of_reach(at(8), seen(), at(8)) == []


def test_who_starts_behind_the_end_reads_nothing_unless_the_log_itself_begins_there() -> None:
    """By a time that only this partition's end lies before; retention is another matter."""
    later = limited_to(at(12, 5, initial=True), at(8, 9), {tp(0): 3})
    assert later == at(8, 5, initial=True)
    assert out_of_reach(later, seen(20, 20), at(8, 9)) == []
    lost = limited_to(at(12, initial=True), at(8), {tp(0): 12})
    assert [type(found) for found in out_of_reach(lost, seen(20), at(8))] == [StartLostError]


def test_a_topic_that_is_not_in_the_target_leaves_no_trace_in_the_offsets() -> None:
    both = ObservedPartitions({tp(0): 5, tp(0, "new"): 3}, {"t": OLD, "new": NEW})
    assert capped(both, {tp(0): 4}) == ObservedPartitions({tp(0): 4}, {"t": OLD})
