"""The envelope around the text beside a committed offset."""

import pytest

from kafka_actors.group.commit_metadata import CommitMetadata, pack, unpack

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
