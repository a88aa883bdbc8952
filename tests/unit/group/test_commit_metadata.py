"""The envelope around the text beside a committed offset."""

import pytest

from kafka_actors.errors import TopicRecreatedError
from kafka_actors.group.commit_metadata import (
    CommitMetadata,
    ReaderMetadata,
    ReadOffset,
    offsets_read,
    pack,
    unpack,
)
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

ID = bytes(range(16))
ENVELOPE = '{"kafka-actors":1,"topicId":"AAECAwQFBgcICQoLDA0ODw"}'


@pytest.mark.parametrize(
    "text", ["", "my note", 'a "quoted" ☃\n', "{}", ENVELOPE, '{"kafka-actors":', "x" * 4_000]
)
@pytest.mark.parametrize("topic_id", [None, ID])
def test_a_users_text_comes_back_unchanged_with_the_topics_id(text, topic_id):
    assert unpack(pack(text, topic_id)) == CommitMetadata(text, topic_id)


def test_the_cluster_is_told_with_the_topics_id():
    assert unpack(pack("note", ID, "c1")) == CommitMetadata("note", ID, "c1")
    assert pack("", ID, "c1") == ENVELOPE[:-1] + ',"clusterId":"c1"}'
    assert pack("note", None, "c1") == "note"


def test_its_form_is_what_other_tools_see():
    assert pack("", ID) == ENVELOPE
    assert pack("note", ID) == ENVELOPE[:-1] + ',"metadata":"note"}'
    assert pack("note", None) == "note"


@pytest.mark.parametrize(
    "foreign",
    [
        "",
        "a note of another client",
        '{"kafka-actors":2,"topicId":"AAECAwQFBgcICQoLDA0ODw"}',
        '{"kafka-actors":1,"topicId":"AAEC"}',
        '{"kafka-actors":1,"topicId":"!!!!!!!!!!!!!!!!!!!!!!"}',
        '{"kafka-actors":1,"topicId":5}',
        '{"kafka-actors":1',
        '{"kafka-actors":"one"}',
    ],
)
def test_foreign_text_is_handed_on_as_it_is(foreign):
    assert unpack(foreign) == CommitMetadata(foreign, None)


@pytest.mark.parametrize("depth", [1, 2_000, 100_000])
def test_nesting_of_any_depth_is_no_error(depth):
    """From some depth on, other than that of the next Python, its decoder gives up, and the text counts as foreign."""
    nested = '{"kafka-actors":1,"nested":' + "[" * depth + "]" * depth + "}"
    assert unpack(nested) in (CommitMetadata(""), CommitMetadata(nested))


def test_no_metadata_is_no_text():
    assert unpack(None) == CommitMetadata("", None)


def test_later_fields_join_without_a_new_form():
    assert unpack(ENVELOPE[:-1] + ',"lanes":[1,2]}') == CommitMetadata("", ID)


def test_a_text_that_only_fits_without_an_envelope_goes_without():
    assert pack("x" * 4_096, ID) == "x" * 4_096


def test_a_transaction_is_named_where_there_is_room():
    packed = pack("note", None, transaction="7/0/1")
    assert packed == '{"kafka-actors":1,"transaction":"7/0/1","metadata":"note"}'
    assert unpack(packed) == CommitMetadata("note")
    topic_id = bytes(range(16))
    for length in (3_000, 4_010, 4_090):
        packed = pack("x" * length, topic_id, transaction="7/0/1")
        assert unpack(packed) == CommitMetadata("x" * length, topic_id if length < 4_090 else None)
        assert ("7/0/1" in packed) is (length == 3_000)


A, B = TopicPartition("t", 0), TopicPartition("u", 0)
OLD, NEW = b"a" * 16, b"b" * 16


def test_offsets_of_a_transaction_name_the_topic_that_was_read_and_the_leaders_epoch():
    read = {A: ReadOffset(7, 3, OLD, OLD, "cluster")}
    group = ReaderMetadata.of(ConsumerGroupMetadata("g", 4, "m"), read)
    offsets = {A: OffsetAndMetadata(7, "note"), B: OffsetAndMetadata(9)}
    assert offsets_read(offsets, group) == {
        A: OffsetAndMetadata(7, pack("note", OLD, "cluster"), 3),
        B: OffsetAndMetadata(9),
    }
    assert offsets_read({A: OffsetAndMetadata(6)}, group)[A].leader_epoch == -1
    assert offsets_read({A: OffsetAndMetadata(7, "", 2)}, group)[A].leader_epoch == 2
    assert offsets_read(offsets, ConsumerGroupMetadata("g")) == offsets


def test_offsets_of_a_topic_that_was_made_anew_are_refused():
    group = ReaderMetadata.of(ConsumerGroupMetadata("g"), {A: ReadOffset(7, 3, OLD, NEW, None)})
    with pytest.raises(TopicRecreatedError, match="t-0 at offset 7: the topic was recreated"):
        offsets_read({A: OffsetAndMetadata(7)}, group)
    unknown = ReaderMetadata.of(group, {A: ReadOffset(7, 3, None, NEW, None)})
    assert offsets_read({A: OffsetAndMetadata(7)}, unknown) == {A: OffsetAndMetadata(7, "", 3)}
