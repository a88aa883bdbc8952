"""Which keys wait in which tier, by what is found, written and done there."""

from kafka_actors.job.worker.machines.waiting_keys import WaitingKeys


def test_a_record_waits_behind_those_of_its_key_in_any_later_tier():
    keys = WaitingKeys(3)
    keys.found(2, b"a", 5, 1_000)
    assert keys.behind(0, b"a") == keys.behind(1, b"a") == (2, 1_000)
    assert keys.behind(2, b"a") is None
    assert keys.behind(0, b"b") is None


def test_of_several_tiers_the_lowest_has_the_newest_records_of_a_key():
    keys = WaitingKeys(3)
    keys.found(3, b"a", 5, 9_000)
    keys.found(2, b"a", 5, 1_000)
    assert keys.behind(0, b"a") == keys.behind(1, b"a") == (2, 1_000)
    assert keys.behind(2, b"a") == (3, 9_000)


def test_what_is_found_waits_until_the_newest_of_it_is_done():
    keys = WaitingKeys(1)
    keys.found(1, b"a", 3, 10)
    keys.found(1, b"a", 7, 20)
    assert keys.behind(0, b"a") == (1, 20), "they are due together with the last one that failed"
    keys.done(1, b"a", 3)
    assert keys.behind(0, b"a") == (1, 20)
    keys.done(1, b"a", 7)
    assert keys.behind(0, b"a") is None
    assert len(keys) == 0


def test_what_is_being_written_is_newer_than_all_that_is_done():
    keys = WaitingKeys(1)
    keys.found(1, b"a", 3, 10)
    keys.writing(1, b"a", 30)
    keys.done(1, b"a", 3)
    assert keys.behind(0, b"a") == (1, 30)
    keys.written(1, b"a", 4)
    assert keys.behind(0, b"a") == (1, 30)
    keys.done(1, b"a", 4)
    assert keys.behind(0, b"a") is None


def test_what_is_done_before_its_writer_hears_its_offset_waits_no_more():
    keys = WaitingKeys(1)
    keys.writing(1, b"a", 30)
    keys.writing(1, b"a", 30)
    keys.done(1, b"a", 0)
    keys.done(1, b"a", 1)
    keys.written(1, b"a", 0)
    assert keys.behind(0, b"a") == (1, 30)
    keys.written(1, b"a", 1)
    assert len(keys) == 0


def test_a_record_that_is_gone_holds_its_key_until_the_next_one_is_done():
    keys = WaitingKeys(1)
    keys.found(1, b"a", 3, 10)
    keys.writing(1, b"a", 30)
    keys.written(1, b"a", 9)
    keys.done(1, b"a", 9)
    assert len(keys) == 0


def test_what_nobody_knew_of_changes_nothing():
    keys = WaitingKeys(1)
    keys.done(1, b"a", 9)
    assert len(keys) == 0
