"""The checker of histories: a clean one has no anomaly, and each planted anomaly is named, and only it."""

import msgspec
import pytest
from histories import checker
from histories.checker import NAMES, Anomaly, check, doubled, repeats
from histories.history import (
    Acknowledged,
    Assigned,
    Committed,
    Fault,
    Log,
    Polled,
    Processed,
    Refused,
    Revoked,
    Sent,
    Sought,
    Writer,
    read,
)

VALUES = [f"p0/{n}" for n in range(10)]
"""Of a log with ten records of the producer p0."""


@pytest.fixture(autouse=True)
def _commits_are_replicated_at_once(monkeypatch):
    """These histories are of seconds; one test says what the time is for."""
    monkeypatch.setattr(checker, "REPLICATED_S", 0.0)


def sent(at, number, producer="p0"):
    return Sent(at, "t", 0, producer, number, f"{producer}/{number}")


def acknowledged(at, number, offset, producer="p0"):
    return Acknowledged(at, "t", 0, producer, f"{producer}/{number}", offset)


def assigned(at, start, member="a", epoch=1, reader="r", since=None):
    return Assigned(at, "t", 0, reader, member, epoch, start, since)


def polled(at, offsets, member="a", epoch=1, reader="r", values=None):
    return Polled(at, "t", 0, reader, member, list(offsets), values or [VALUES[o] for o in offsets], epoch)


def processed(at, offsets, member="a", reader="r"):
    return Processed(at, "t", 0, reader, member, list(offsets))


def worked(at, offsets, member="a", epoch=1, reader="r"):
    """Polled and processed."""
    return [polled(at, offsets, member, epoch, reader), processed(at + 0.1, offsets, member, reader)]


def committed(at, offset, reader="r"):
    return Committed(at, "t", 0, reader, offset)


def log(values=VALUES, at=99.0):
    return Log(at, "t", 0, list(range(len(values))), list(values), len(values))


def written(values=10):
    """All of p0's records, acknowledged where they are."""
    return [e for n in range(values) for e in (sent(0.1 * n, n), acknowledged(0.1 * n + 0.05, n, n))]


READ = [
    assigned(10, 0),
    *worked(11, range(6)),
    committed(12, 6),
    *worked(13, range(6, 10)),
    committed(14, 10),
]
"""One member reads all."""
CLEAN = [*written(), log(), *READ, Fault(3, "SIGKILL", "broker 1")]


def only(history):
    """The one anomaly of the history."""
    found = check(history)
    assert len(found) == 1, [str(a) for a in found]
    return found[0]


def test_a_clean_history_has_no_anomaly():
    assert check(CLEAN) == []
    assert repeats(CLEAN)["r"] == 0


def test_repeats_from_a_committed_offset_are_no_anomaly_and_are_counted():
    """A member dies behind its last commit; another one goes on from there, and in the end the first one's zombie polls what it has."""
    history = [
        *written(),
        log(),
        assigned(10, 0),
        *worked(11, range(4)),
        committed(12, 4),
        *worked(13, range(4, 8)),
        assigned(20, 4, "b"),
        *worked(21, range(4, 10), "b"),
        *worked(22, range(8, 9)),
        Revoked(23, "t", 0, "r", "a", 1),
        committed(24, 10),
    ]
    assert check(history) == []
    assert repeats(history) == {"r": 5}


def test_an_assignment_may_begin_at_what_was_committed_when_it_may_have_been_asked_for():
    commits = [committed(12, 2), committed(15, 4), committed(18, 6)]
    first = [*written(), log(), assigned(10, 0), *worked(11, range(10)), *commits, committed(30, 10)]
    for since, starts in ((None, {6}), (16, {4, 6}), (12.5, {2, 4, 6}), (9, {0, 2, 4, 6})):
        for start in range(11):
            found = [a.name for a in check([*first, assigned(20, start, "b", since=since)])]
            assert found == ([] if start in starts else [checker.UNCOMMITTED_START]), (since, start)


def test_an_assignment_whose_position_nobody_knew_begins_with_its_first_poll():
    first = [*written(), log(), assigned(10, 0), *worked(11, range(10)), committed(12, 4)]
    for start in range(10):
        found = check([*first, assigned(20, None, "b"), *worked(21, range(start, 10), "b")])
        assert [a.name for a in found] == ([] if start == 4 else [checker.UNCOMMITTED_START])


def test_assignments_of_a_job_are_told_from_its_polls():
    """Its function isn't told of them: a poll of another process, and one that does not go on, begin another."""
    first = [
        *worked(11, range(4), epoch=None),
        committed(12, 4),
        *worked(13, range(4, 8), epoch=None),
        *worked(14, range(4, 6), "b", None),
        *worked(15, range(6, 10), "b", None),
    ]
    assert check([*written(), log(), *first]) == []
    for again, name in ((range(4, 10), []), (range(3, 10), [checker.UNCOMMITTED_START])):
        found = check([*written(), log(), *first, *worked(16, again, "b", None)])
        assert [a.name for a in found] == name


def test_an_assignment_of_a_job_begins_at_what_was_committed_since_the_last_poll_of_all():
    """Also where it goes on just where the one before it ended."""
    first = [*worked(11, range(4), epoch=None), committed(12, 2), committed(13, 4)]
    first += [*worked(16, range(4, 8), epoch=None), committed(17, 6)]
    for start in range(10):
        found = check([*written(), log(), *first, *worked(20, range(start, 10), "b", None)])
        missing = {checker.UNSEEN} if start > 8 else set()
        assert {a.name for a in found} == missing | (
            set() if start in (4, 6) else {checker.UNCOMMITTED_START}
        ), start


def test_a_commit_that_followers_have_not_got_yet_may_be_unknown_to_the_next_owner(monkeypatch):
    """The commit of 4 is in the coordinator's log from 13 on, and nobody was told so before 18, if it takes 5 s."""
    monkeypatch.setattr(checker, "REPLICATED_S", 5.0)
    first = [*worked(1, range(4)), committed(2, 2), committed(13, 4)]
    for at, starts in ((17.0, (2, 4)), (18.5, (4,))):
        for start in range(10):
            found = check(
                [
                    *written(),
                    log(),
                    assigned(0, 0),
                    *first,
                    assigned(at, start, "b"),
                    *worked(19, range(start, 10), "b"),
                ]
            )
            assert (checker.UNCOMMITTED_START in {a.name for a in found}) is (start not in starts), (
                at,
                start,
            )


def test_an_acknowledgement_without_an_offset_is_a_promise_of_our_own_producers_alone():
    """librdkafka takes an answer of a topic that was made anew for one to a record that is there twice."""
    for once in (True, False):
        lost = [Sent(1, "t", 0, "p1", 0, "p1/0", once), Acknowledged(2, "t", 0, "p1", "p1/0", -1)]
        found = check([*CLEAN, *lost])
        assert [a.name for a in found] == ([checker.LOST_WRITE] if once else [])


def test_a_member_that_seeks_may_go_back_and_on():
    seeking = [
        Sought(15, "t", 0, "r", "a", 1, 2),
        *worked(16, range(2, 3)),
        Sought(17, "t", 0, "r", "a", 1, 8),
    ]
    assert check([*CLEAN, *seeking, *worked(18, range(8, 10))]) == []


def test_offsets_without_a_record_are_neither_skipped_nor_unseen():
    """Markers of transactions, and what compaction took."""
    gaps = Log(99, "t", 0, [1, 2, 5], ["p0/0", "p0/1", "p0/2"], 7)
    history = [
        *[sent(0.1 * n, n) for n in range(3)],
        gaps,
        assigned(10, 0),
        Polled(11, "t", 0, "r", "a", [1, 2, 5], ["p0/0", "p0/1", "p0/2"], 1),
        processed(12, [1, 2]),
        committed(13, 5),
        processed(14, [5]),
        committed(15, 7),
    ]
    assert check(history) == []


def without(event_type, **fields):
    """The clean history without one event."""
    left = [
        e
        for e in CLEAN
        if not (isinstance(e, event_type) and all(getattr(e, k) == v for k, v in fields.items()))
    ]
    assert len(left) == len(CLEAN) - 1
    return left


PLANTED = {
    checker.LOST_WRITE: (
        [*CLEAN, sent(2, 10), acknowledged(2.1, 10, 10)],
        ((10,), ("p0/10",), "p0", 2.1),
    ),
    checker.WRONG_OFFSET: (
        [*without(Acknowledged, offset=7), acknowledged(2, 7, 8)],
        ((7,), ("p0/7",), "p0", 2),
    ),
    checker.DUPLICATE_WRITE: (
        [
            *written(9),
            log([*VALUES[:9], "p0/8"]),
            *READ[:-3],
            polled(13, range(6, 10), values=[*VALUES[6:9], "p0/8"]),
            *READ[-2:],
        ],
        ((8, 9), ("p0/8", "p0/8"), "p0", 0.8),
    ),
    checker.NOBODY_SENT: (
        [e for e in CLEAN if getattr(e, "value", "") != "p0/9"],
        ((9,), ("p0/9",), "nobody", 99),
    ),
    checker.WRITE_ORDER: (
        [sent(0.1 * n, {3: 4, 4: 3}.get(n, n)) for n in range(10)]
        + [
            log([*VALUES[:3], "p0/4", "p0/3", *VALUES[5:]]),
            assigned(10, 0),
            polled(11, range(10), values=[*VALUES[:3], "p0/4", "p0/3", *VALUES[5:]]),
            processed(12, range(10)),
        ],
        ((3, 4), ("p0/4", "p0/3"), "p0", 0.4),
    ),
    checker.INCONSISTENT_READ: (
        [*CLEAN, assigned(20, 10, "b"), polled(21, [10], "b", values=["p0/9"])],
        ((10,), ("p0/9",), "r/b", 21),
    ),
    checker.UNSEEN: (
        [*CLEAN, assigned(10, 0, reader="s"), *worked(11, range(9), reader="s")],
        ((9,), ("p0/9",), "s", 99),
    ),
    checker.SKIPPED_POLL: (
        [
            *CLEAN,
            assigned(10, 0, reader="s"),
            *worked(11, [0, 1, 5, 6], reader="s"),
            *worked(12, [7, 8, 9], reader="s"),
            assigned(20, 0, "b", reader="s"),
            *worked(21, range(7), "b", reader="s"),
        ],
        ((2, 3, 4), ("p0/2", "p0/3", "p0/4"), "s/a", 11),
    ),
    checker.POLL_BACK: (
        [*CLEAN, polled(15, [4, 5, 6])],
        ((4,), ("p0/4",), "r/a", 15),
    ),
    checker.POLL_OUTSIDE: (
        [*CLEAN, Revoked(15, "t", 0, "r", "a", 1), assigned(16, 10, "a", 2), polled(17, [9], "a", 1)],
        ((9,), ("p0/9",), "r/a", 17),
    ),
    checker.UNCOMMITTED_START: (
        [*CLEAN, assigned(20, 7, "b")],
        ((7,), ("p0/7",), "r/b", 20),
    ),
    checker.COMMIT_BACK: (
        [*CLEAN, committed(15, 6)],
        ((6,), ("p0/6",), "r", 15),
    ),
    checker.COMMIT_PAST: (
        [*without(Committed, offset=6), committed(12, 8)],
        ((6, 8), ("p0/6", "p0/8"), "r", 12),
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_anomaly_is_named_and_only_it(name):
    history, (offsets, values, who, at) = PLANTED[name]
    found = only(history)
    assert found._replace(why="") == Anomaly(name, "t", 0, offsets, values, who, pytest.approx(at))


def test_a_producer_that_does_not_promise_to_write_once_may_write_twice():
    history = [
        msgspec.structs.replace(e, once=False) if isinstance(e, Sent) else e
        for e in PLANTED[checker.DUPLICATE_WRITE][0]
    ]
    assert check(history) == []
    assert (doubled(history), doubled(CLEAN)) == (1, 0)


def test_a_record_whose_send_failed_may_not_be_in_the_log():
    found = only([*without(Acknowledged, offset=9), Refused(2, "t", 0, "p0", "p0/9", "too large")])
    assert (found.name, found.offsets, found.who) == (checker.NOBODY_SENT, (9,), "p0")
    assert "too large" in found.why


def test_a_record_whose_outcome_is_unknown_may_be_there_or_not():
    assert check([*without(Acknowledged, offset=9), sent(2, 10)]) == []


def test_a_record_that_was_acknowledged_without_its_offset_may_be_anywhere():
    assert check([*without(Acknowledged, offset=9), acknowledged(2, 9, -1)]) == []


def test_a_commit_counts_only_what_was_processed_until_then_by_its_own_group():
    """A millisecond is what the brokers' times are rounded by."""
    late = [assigned(10, 0, reader="s"), *worked(11, range(10), reader="s")]
    assert check([*CLEAN, *late, committed(11.0995, 10, "s")]) == []
    found = only([*CLEAN, *late, committed(11.05, 10, "s")])
    assert (found.name, found.offsets, found.who) == (checker.COMMIT_PAST, (0, 10), "s")
    found = only([*CLEAN, committed(15, 11)])
    assert (found.name, found.offsets, found.who) == (checker.COMMIT_PAST, (10, 11), "r")


def test_a_commit_that_lands_late_is_no_anomaly_once_it_is_put_right():
    assert list(check([*CLEAN, committed(15, 6), committed(45, 10)])) == []


def test_an_anomaly_says_where_which_who_and_when():
    assert str(only([*CLEAN, committed(15, 6)])) == (
        "commit that goes back: t-0 offsets [6] values [p0/6] r at 15.000: 10 was committed before, and not again"
    )


def test_a_history_without_the_final_log_of_a_partition_is_refused():
    with pytest.raises(ValueError, match="t-0 has 0 final logs"):
        check([e for e in CLEAN if not isinstance(e, Log)])


def test_a_history_is_read_as_it_was_written_but_for_a_line_that_was_cut_off(tmp_path):
    for name, events in (("one", CLEAN[:25]), ("other", CLEAN[25:])):
        writer = Writer(tmp_path / name)
        writer.write(*events)
        writer.close()
    with (tmp_path / "other").open("ab") as file:
        file.write(b'{"type":"Committed"')
    assert read(sorted(tmp_path.iterdir())) == sorted(CLEAN, key=lambda e: e.at)


@pytest.mark.parametrize("events", [[], [Assigned(10, "t", 1, "r", "a", 1, 0, None)]])
def test_records_of_a_partition_that_a_reader_never_read_are_unseen(events):
    other = [
        Sent(1, "t", 1, "p1", 0, "p1/0"),
        Acknowledged(1.1, "t", 1, "p1", "p1/0", 0),
        Log(99, "t", 1, [0], ["p1/0"], 1),
    ]
    (found,) = check([*written(), *READ, log(), *other, *events])
    assert (found.name, found.partition) == (checker.UNSEEN, 1)
