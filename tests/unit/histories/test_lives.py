"""The checker where records may be gone: what an unclean election, a deletion and a topic made anew excuse, and what they do not."""

import pytest
from histories import checker
from histories.checker import check
from histories.history import (
    DELETED,
    RECREATED,
    TRUNCATED,
    Acknowledged,
    Assigned,
    Committed,
    Gone,
    Log,
    Polled,
    Processed,
    Refused,
    Revoked,
    Sent,
)


@pytest.fixture(autouse=True)
def _commits_are_replicated_at_once(monkeypatch):
    """These histories are of seconds."""
    monkeypatch.setattr(checker, "REPLICATED_S", 0.0)


def sent(at, number):
    return Sent(at, "t", 0, "p", number, f"p/{number}")


def acknowledged(at, number, offset):
    return Acknowledged(at, "t", 0, "p", f"p/{number}", offset)


def written(at, numbers, first):
    """Records that were acknowledged, from an offset on."""
    return [
        e
        for offset, number in enumerate(numbers, first)
        for e in (sent(at, number), acknowledged(at + 0.1, number, offset))
    ]


def worked(at, numbers, first, epoch=1, member="a"):
    """Polled and processed, from an offset on."""
    offsets = list(range(first, first + len(numbers)))
    return [
        Polled(at, "t", 0, "r", member, offsets, [f"p/{n}" for n in numbers], epoch),
        Processed(at + 0.1, "t", 0, "r", member, offsets),
    ]


def assigned(at, epoch=1, member="a", since=None):
    return Assigned(at, "t", 0, "r", member, epoch, None, since)


def committed(at, offset, topic_id=""):
    return Committed(at, "t", 0, "r", offset, topic_id)


def log(numbers, first=0, topic_id=""):
    offsets = list(range(first, first + len(numbers)))
    return Log(99, "t", 0, offsets, [f"p/{n}" for n in numbers], first + len(numbers), topic_id)


def gone(how, offset, numbers, first, topic_id="", since=20.0):
    offsets = list(range(first, first + len(numbers)))
    return Gone(since + 2, "t", 0, how, since, offset, offsets, [f"p/{n}" for n in numbers], topic_id)


def old(*, commits=True, topic_id=""):
    """The records 0 to 9 are written, read and committed."""
    read = [*written(1, range(10), 0), assigned(10), *worked(11, range(10), 0)]
    return [*read, committed(12, 10, topic_id)] if commits else read


CLEAN = {
    # The records at 6 to 9 are lost, and 10 to 15 are written in their place and behind it.
    TRUNCATED: [
        *old(),
        gone(TRUNCATED, 6, range(6, 10), 6),
        *written(30, range(10, 16), 6),
        *worked(40, range(10, 16), 6),
        committed(41, 8),
        committed(42, 12),
        log([*range(6), *range(10, 16)]),
    ],
    # The records at 0 to 7 are deleted, while the reader is at 3.
    DELETED: [
        *written(1, range(10), 0),
        assigned(10),
        *worked(11, range(3), 0),
        committed(12, 3),
        gone(DELETED, 8, range(8), 0),
        *worked(30, range(8, 10), 8),
        committed(31, 10),
        log(range(8, 10), 8),
    ],
    # The topic with the records 0 to 9 is deleted, and 10 to 15 are written to another of its name.
    RECREATED: [
        *old(topic_id="A"),
        gone(RECREATED, 0, range(10), 0, "A"),
        *written(30, range(10, 16), 0),
        *worked(40, range(10, 16), 0),
        committed(41, 3, "B"),
        committed(42, 6, "B"),
        log(range(10, 16), 0, "B"),
    ],
}


def names(history):
    return [anomaly.name for anomaly in check(history)]


@pytest.mark.parametrize("how", CLEAN)
def test_what_went_is_excused_and_readers_go_on_behind_it(how):
    assert [str(a) for a in check(CLEAN[how])] == []


@pytest.mark.parametrize("how", CLEAN)
def test_without_knowledge_of_the_loss_nothing_is_excused(how):
    found = set(names([e for e in CLEAN[how] if not isinstance(e, Gone)]))
    assert checker.LOST_WRITE in found
    assert found & {checker.INCONSISTENT_READ, checker.SKIPPED_POLL}


@pytest.mark.parametrize("how", CLEAN)
def test_an_acknowledged_record_that_is_in_no_log_is_lost_whatever_else_went(how):
    """Not even at an offset that went."""
    assert names([*CLEAN[how], sent(2, 50), acknowledged(2.1, 50, 7)]) == [checker.LOST_WRITE]
    assert names([*CLEAN[how], sent(2, 50), acknowledged(2.1, 50, -1)]) == [checker.LOST_WRITE]


@pytest.mark.parametrize("how", CLEAN)
def test_what_went_from_another_partition_excuses_nothing(how):
    other = [Gone(22, "t", 1, how, 20, 0, [7], ["p/50"]), Log(99, "t", 1, [], [], 0)]
    other += [Sent(2, "t", 1, "p", 50, "p/50")]
    assert names([*CLEAN[how], *other]) == []
    assert names([*CLEAN[how], *other, sent(2, 50), acknowledged(2.1, 50, 7)]) == [checker.LOST_WRITE]


@pytest.mark.parametrize("how", CLEAN)
def test_records_that_went_are_held_to_what_producers_promise(how):
    def with_lost(history, *numbers):
        """With more records among the lost ones."""
        (loss,) = [e for e in history if isinstance(e, Gone)]
        offsets, values = [*loss.offsets], [*loss.values]
        for offset, number in enumerate(numbers, offsets[-1] + 1):
            offsets.append(offset)
            values.append(f"p/{number}")
        fields = {name: getattr(loss, name) for name in loss.__struct_fields__}
        return [Gone(**{**fields, "offsets": offsets, "values": values}) if e is loss else e for e in history]

    clean = [e for e in CLEAN[how] if not isinstance(e, Polled | Processed | Committed | Assigned)]
    if how == DELETED:  # what is behind the lost ones is still there: make room
        clean = [
            *written(1, range(8), 0),
            gone(DELETED, 10, range(8), 0),
            log([], 10),
        ]
    assert names(with_lost(clean, 50)) == [checker.NOBODY_SENT]
    assert names(with_lost([*clean, sent(2, 50)], 50)) == []
    assert names(with_lost([*clean, sent(2, 50), sent(2, 51)], 51, 50)) == [checker.WRITE_ORDER]
    assert names(with_lost([*clean, sent(2, 50)], 50, 50)) == [checker.DUPLICATE_WRITE]
    refused = Refused(3, "t", 0, "p", "p/50", "too large")
    assert names(with_lost([*clean, sent(2, 50), refused], 50)) == [checker.NOBODY_SENT]
    elsewhere = [sent(2, 50), acknowledged(2.1, 50, 30)]
    assert names(with_lost([*clean, *elsewhere], 50)) == [checker.WRONG_OFFSET]


def test_a_record_without_answer_may_be_written_again_to_the_next_log():
    """The leader that took it is gone with it; in one log it is a duplicate."""
    history = [e for e in CLEAN[TRUNCATED] if not (isinstance(e, Acknowledged) and e.value == "p/9")]
    again = [gone(TRUNCATED, 6, range(6, 10), 6), log([*range(6), 9, *range(11, 16)])]
    history = [
        e for e in history if not isinstance(e, Gone | Log | Assigned | Polled | Processed | Committed)
    ]
    history = [e for e in history if getattr(e, "value", "") != "p/10"]
    assert names([*history, *again]) == []
    assert names([*history, again[0], log([*range(6), 9, *range(11, 16), 9])]) == [checker.DUPLICATE_WRITE]


GOES_ON = {TRUNCATED: 6, RECREATED: 0}
"""Where readers of the log before go on."""


@pytest.mark.parametrize(("how", "offset"), GOES_ON.items())
def test_a_reader_goes_on_where_the_logs_part_and_nowhere_else(how, offset):
    numbers = list(range(10, 16))
    for start in range(6):
        read = [e for e in CLEAN[how] if e.at not in (40, 40.1, 41, 42)]
        read += worked(40, numbers[start:], offset + start)
        read += [assigned(50, 2, "b", 9), *worked(51, numbers, offset, 2, "b")]
        assert names(read) == ([checker.SKIPPED_POLL] if start else []), start


def test_a_reader_does_not_go_back_before_the_truncation():
    read = [*CLEAN[TRUNCATED], *worked(45, [4, 5], 4)]
    assert names(read) == [checker.POLL_BACK]
    read = [e for e in CLEAN[TRUNCATED] if e.at not in (40, 40.1)]
    assert names([*read, *worked(40, [4, 5, *range(10, 16)], 4)]) == [checker.POLL_BACK]


@pytest.mark.parametrize("how", GOES_ON)
def test_what_it_had_fetched_before_comes_still_but_not_behind_the_next_log(how):
    late = [e for e in CLEAN[how] if e.at not in (11, 11.1, 12)]
    assert names([*late, *worked(25, range(10), 0)]) == []
    behind = [*CLEAN[how], *worked(50, [9], 9)]
    assert checker.INCONSISTENT_READ in names(behind)


@pytest.mark.parametrize("how", GOES_ON)
def test_the_next_log_is_not_read_before_it_may_have_begun(how):
    early = [e for e in CLEAN[how] if e.at not in (40, 40.1)]
    early += worked(15, range(10, 16), GOES_ON[how])
    assert checker.INCONSISTENT_READ in names(early)


@pytest.mark.parametrize("how", GOES_ON)
def test_all_of_the_next_log_has_to_be_seen(how):
    read = [e for e in CLEAN[how] if e.at not in (40, 40.1, 41, 42)]
    assert names(read) == [checker.UNSEEN] * 6
    assert names([*read, *worked(40, range(10, 15), GOES_ON[how])]) == [checker.UNSEEN]


@pytest.mark.parametrize(("how", "offset"), GOES_ON.items())
def test_an_assignment_begins_where_the_log_of_the_commit_parts_from_the_next(how, offset):
    first = [e for e in CLEAN[how] if e.at < 40 or isinstance(e, Log)]
    for start in range(6):
        read = [Revoked(39, "t", 0, "r", "a", 1), assigned(40, 2, "b")]
        read += worked(41, list(range(10, 16))[start:], offset + start, 2, "b")
        read += [assigned(50, 3, "b"), *worked(51, range(10, 16), offset, 3, "b")]
        assert names([*first, *read]) == ([checker.UNCOMMITTED_START] if start else []), start


def test_a_commit_of_the_topic_that_is_there_counts_and_those_before_it_do_not():
    for start in range(6):
        read = [assigned(45, 2, "b", 44), *worked(46, list(range(10, 16))[start:], start, 2, "b")]
        history = [e for e in CLEAN[RECREATED] if e.at != 42]
        assert names([*history, *read]) == ([] if start == 3 else [checker.UNCOMMITTED_START]), start


def test_a_reader_may_be_passed_by_a_deletion_only_where_and_when_it_was():
    def reading(at, first):
        history = [e for e in CLEAN[DELETED] if e.at not in (30, 30.1, 31)]
        history += worked(at, range(first, 10), first)
        return names([*history, assigned(50, 2, "b", 9), *worked(51, range(8, 10), 8, 2, "b")])

    for first in range(3, 9):
        assert reading(30, first) == []
    assert reading(30, 9) == [checker.SKIPPED_POLL]
    assert reading(15, 8) == [checker.SKIPPED_POLL]
    assert reading(15, 3) == []


def test_an_assignment_behind_a_deletion_begins_at_what_is_left():
    history = [e for e in CLEAN[DELETED] if e.at not in (30, 30.1, 31)]
    for commits in (True, False):
        for first in (8, 9):
            first_commit = [e for e in history if commits or not isinstance(e, Committed)]
            read = [assigned(40, 2, "b"), *worked(41, range(first, 10), first, 2, "b")]
            found = names([*first_commit, *read])
            assert found == ([] if first == 8 else [checker.UNCOMMITTED_START, checker.UNSEEN]), found


@pytest.mark.parametrize("how", [DELETED, TRUNCATED, RECREATED])
def test_a_commit_may_not_pass_what_was_neither_processed_nor_gone(how):
    unread = [e for e in CLEAN[how] if not isinstance(e, Committed)]
    at = {DELETED: 10, TRUNCATED: 12, RECREATED: 6}[how]
    early, id_ = (25, {RECREATED: "B"}.get(how, ""))
    # Before it read on, a group may have committed what it had read, or what went.
    allowed = {DELETED: 8, TRUNCATED: 10, RECREATED: 0}[how]
    for offset in range(at + 2):
        found = names([*unread, committed(early, offset, id_), committed(60, at, id_)])
        assert (checker.COMMIT_PAST in found) == (offset > allowed), offset
    assert checker.COMMIT_PAST in names([*unread, committed(60, at + 1, id_)])


def test_a_commit_passes_what_is_deleted_only_once_it_is():
    history = [e for e in CLEAN[DELETED] if not isinstance(e, Committed)]
    assert names([*history, committed(19, 8), committed(31, 10)]) == [checker.COMMIT_PAST]
    assert names([*history, committed(21, 8), committed(31, 10)]) == []


def test_commits_go_back_to_where_a_log_was_truncated_and_no_further():
    history = [e for e in CLEAN[TRUNCATED] if e.at not in (41, 42)]
    for offset in range(12):
        found = names([*history, committed(41, offset)])
        assert found == ([] if offset in (6, 7, 8, 9, 10, 11) else [checker.COMMIT_BACK]), offset
    # What is read behind the end of the lost log does not go back, ...
    assert names([*history, committed(41, 11), committed(42, 8)]) == [checker.COMMIT_BACK]
    # ... nor do commits from before the loss.
    assert names([*history, committed(13, 7), committed(14, 8)]) == [checker.COMMIT_BACK] * 2


def test_a_commit_of_the_topic_before_is_not_the_last_one():
    zombie = committed(43, 10, "A")
    assert names([*CLEAN[RECREATED], zombie]) == [checker.COMMIT_BACK]
    assert names([*CLEAN[RECREATED], zombie, committed(44, 6, "B")]) == []
    assert names([*CLEAN[RECREATED], committed(43, 4, "B")]) == [checker.COMMIT_BACK]


def test_commits_that_name_no_topic_go_back_with_it():
    history = [
        Committed(e.at, "t", 0, "r", e.offset) if isinstance(e, Committed) else e for e in CLEAN[RECREATED]
    ]
    assert names(history) == []


def test_several_losses_follow_each_other():
    """A truncation of a truncated log, and a deletion behind it."""
    history = [
        *CLEAN[TRUNCATED][:-1],
        gone(TRUNCATED, 8, range(12, 16), 8, since=50.0),
        *written(60, range(16, 20), 8),
        *worked(61, range(16, 20), 8),
        committed(62, 10),
        gone(DELETED, 7, [*range(6), 10], 0, since=70.0),
        log([11, *range(16, 20)], 7),
    ]
    assert [str(a) for a in check(history)] == []
    assert names([*history, *worked(80, [11], 7)]) == [checker.POLL_BACK]


def sent_again(first_of_new):
    """The records at 6 to 9 are lost; their producer sends number 6 again, to the same place, and others behind it."""
    return [
        *old(),
        gone(TRUNCATED, 6, range(6, 10), 6),
        *written(30, range(10, 16), 7),
        *worked(40, [6, *range(10, 16)][first_of_new - 6 :], first_of_new),
        committed(42, 13),
        log([*range(7), *range(10, 16)]),
    ]


def test_a_record_that_is_at_its_place_in_both_logs_is_read_again_without_going_back():
    assert names(sent_again(6)) == []


def test_a_reader_that_passes_a_record_at_its_place_in_both_logs_skips_it():
    assert names(sent_again(7)) == [checker.SKIPPED_POLL]


@pytest.mark.parametrize("branch", [[7, 8, 9], [10, 11, 12]], ids=["old", "new"])
def test_behind_a_record_that_is_in_both_logs_a_reader_goes_on_in_either(branch):
    lost = [6, 7, 8, 9]
    history = [
        *written(1, range(10), 0),
        assigned(10),
        *worked(11, range(6), 0),
        gone(TRUNCATED, 6, lost, 6),
        *written(30, range(10, 16), 7),
        *worked(40, [6, *branch], 6),
        *(worked(41, [6, *range(10, 16)], 6) if branch[0] == 7 else worked(41, [13, 14, 15], 10)),
        committed(42, 13),
        log([*range(7), *range(10, 16)]),
    ]
    assert names(history) == []
