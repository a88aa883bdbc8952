"""Offsets that are done beyond a committed one, and the text that keeps them."""

import base64
import random

import numpy as np
import pytest

from kafka_actors.group.commit_metadata import MOST_BYTES, MOST_DONE, pack, unpack
from kafka_actors.group.done_offsets import NOTHING_DONE, DoneOffsets, ranges_of, shortened


def of(*ranges, epoch=3):
    return DoneOffsets(ranges, epoch)


def scattered(seed, start, count, most_gap, most_run):
    rand, at, ranges = random.Random(seed), start, []
    for _ in range(count):
        first = at + rand.randint(bool(ranges), most_gap)
        at = first + rand.randint(1, most_run)
        ranges.append((first, at))
    return DoneOffsets(ranges, 7)


@pytest.mark.parametrize("start", [0, 5, 10**14])
@pytest.mark.parametrize(
    ("count", "most_gap", "most_run"), [(1, 1, 1), (40, 3, 2), (40, 5_000, 5_000), (900, 3, 40)]
)
def test_a_text_says_what_it_was_made_of(start, count, most_gap, most_run):
    done = scattered(count, start, count, most_gap, most_run)
    assert DoneOffsets.of_text(done.text(start), start) == done


@pytest.mark.parametrize("most", [9, 10, 40, 300, MOST_DONE])
@pytest.mark.parametrize(("most_gap", "most_run"), [(1, 1), (3, 2), (900, 2), (2, 900), (100_000, 100_000)])
def test_a_text_that_is_too_long_leaves_the_newest_out(most, most_gap, most_run):
    done = scattered(most, 100, 3_000, most_gap, most_run)
    text = done.text(100, most)
    kept = DoneOffsets.of_text(text, 100)
    assert len(text) <= most
    if most >= 40:
        assert kept
        end = kept.ranges[-1, 1]
        offsets = np.arange(100, end)
        assert np.array_equal(kept.has(offsets, 7), done.has(offsets, 7))


def test_the_shorter_form_is_taken():
    every_other = DoneOffsets([(n, n + 1) for n in range(1, 2_000, 2)], 1)
    one_long = DoneOffsets([(1, 1_000_000)], 1)
    assert every_other.text(0)[2] == "b"
    assert len(every_other.text(0)) < 350
    assert one_long.text(0)[2] == "r"
    assert len(one_long.text(0)) < 12


def test_3900_characters_hold_what_is_done_of_23000_records_at_random():
    rand = random.Random(1)
    offsets = np.arange(23_000)
    done = DoneOffsets(ranges_of(offsets, np.array([rand.random() < 0.5 for _ in offsets])), 1)
    assert DoneOffsets.of_text(done.text(0), 0) == done


def test_a_record_of_a_later_leader_epoch_is_another_one():
    done = of((10, 20), epoch=3)
    offsets = np.array([9, 10, 19, 20])
    assert done.has(offsets, 3).tolist() == [False, True, True, False]
    assert done.has(offsets, 2).tolist() == [False, True, True, False]
    assert not done.has(offsets, 4).any()


def test_what_lies_behind_an_offset():
    done = of((10, 20), (30, 40))
    assert done.behind(10) == done
    assert done.behind(15) == of((15, 20), (30, 40))
    assert done.behind(20) == of((30, 40))
    assert done.behind(40) == NOTHING_DONE
    assert not NOTHING_DONE.behind(7)


def test_two_that_follow_each_other_are_joined():
    assert of((1, 5)).joined(of((5, 9), (11, 12))) == of((1, 9), (11, 12))
    assert of((1, 5), epoch=9).joined(of((6, 9), epoch=2)) == of((1, 5), (6, 9), epoch=9)
    assert NOTHING_DONE.joined(of((1, 2))) == of((1, 2)).joined(NOTHING_DONE) == of((1, 2))


def test_offsets_without_a_record_between_two_done_ones_count_as_done():
    offsets = np.array([4, 5, 9, 10, 20])
    assert ranges_of(offsets, np.array([1, 1, 1, 0, 1])).tolist() == [[4, 10], [20, 21]]
    assert ranges_of(offsets, np.zeros(5)).tolist() == []
    assert ranges_of(offsets, np.ones(5)).tolist() == [[4, 21]]


def varints(*numbers):
    data = b"".join(bytes([n]) for n in numbers)
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "my own note",
        "3",
        "3.",
        "3.r",
        "3.b",
        "3.x" + varints(1, 2),
        "3.r" + varints(1),
        "3.r" + varints(1, 0),
        "3.r" + varints(1, 2, 0, 2),
        "3.r" + varints(1, 0x82),
        "3.r" + base64.urlsafe_b64encode(b"\x01" + b"\xff" * 9 + b"\x01").decode().rstrip("="),
        "3.b####",
        "three.b" + varints(1),
        "99999999999.b" + varints(1),
        "-2.b" + varints(1),
        "\N{SNOWMAN}.b" + varints(1),
    ],
)
def test_a_damaged_or_foreign_text_says_nothing(text):
    assert not DoneOffsets.of_text(text, 5)


def test_shortened_texts_are_beginnings():
    done = scattered(4, 0, 500, 9, 9)
    text = done.text(0)
    assert shortened(text, len(text)) == text
    half = shortened(text, len(text) // 2)
    kept = DoneOffsets.of_text(half, 0)
    assert len(half) <= len(text) // 2
    offsets = np.arange(kept.ranges[-1, 1])
    assert np.array_equal(kept.has(offsets, 7), done.has(offsets, 7))


def test_metadata_with_the_longest_text_fits_a_broker():
    text = "9.b" + "A" * (MOST_DONE - 3)
    packed = pack("", bytes(16), "5L6g3nShT-eMCtK--X86sw", done=text)
    assert len(packed) <= MOST_BYTES
    assert unpack(packed) == ("", bytes(16), "5L6g3nShT-eMCtK--X86sw", text)
