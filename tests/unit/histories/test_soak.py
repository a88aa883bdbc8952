"""Parts of a soak that need no brokers."""

from histories.history import Log, Polled, Processed, Writer
from histories.soak import Behind, topic_id_of
from jobs.audit import commit_of


def append(path, *events):
    writer = Writer(path)
    writer.write(*events)
    writer.close()


def test_a_reader_is_behind_until_it_has_processed_all_that_is_in_the_logs(tmp_path):
    """Records that it processed of a log that is gone do not count, though they had the same offsets."""
    append(
        tmp_path / "soak.jsonl", Log(9, "t", 0, [0, 1], ["new/0", "new/1"], 2), Log(9, "t", 1, [0], ["x"], 1)
    )
    behind = Behind(tmp_path, {"consumer", "job"})
    assert behind.left() == {"consumer": 3, "job": 3}
    append(tmp_path / "job.17.jsonl", Polled(1, "t", 1, "job", "job.17", [0], ["x"]))
    append(
        tmp_path / "consumer-1.jsonl",
        Polled(1, "t", 0, "consumer", "consumer-1", [0, 1], ["old/0", "old/1"], 1),
    )
    append(tmp_path / "consumer-1.jsonl", Processed(2, "t", 0, "consumer", "consumer-1", [0, 1]))
    assert behind.left() == {"consumer": 3, "job": 3}, "polled, or of another log"
    append(tmp_path / "job.17.jsonl", Processed(2, "t", 1, "job", "job.17", [0]))
    append(
        tmp_path / "consumer-2.jsonl",
        Polled(3, "t", 0, "consumer", "consumer-2", [0, 1], ["new/0", "new/1"], 1),
        Processed(3, "t", 0, "consumer", "consumer-2", [0, 1]),
    )
    assert behind.left() == {"consumer": 1, "job": 2}
    append(tmp_path / "consumer-3.jsonl", Polled(4, "t", 1, "consumer", "consumer-3", [0], ["x"], 1))
    append(tmp_path / "consumer-3.jsonl", Processed(4, "t", 1, "consumer", "consumer-3", [0]))
    assert behind.left() == {"job": 2}


def test_the_topic_id_of_a_commit_is_read_from_its_metadata():
    assert topic_id_of('{"kafka-actors":1,"topicId":"3t1Ka2mB"}') == "3t1Ka2mB"
    for text in ("", "mine", "[1]", "1", '{"a":1}'):
        assert topic_id_of(text) == ""


def test_commits_are_read_in_each_form_that_kafka_writes():
    epoch, time_ms = b"\0\0\0\2", bytes(8)
    assert commit_of(b"\0\1" + (7).to_bytes(8) + b"\0\2hi" + time_ms) == (7, "hi")
    assert commit_of(b"\0\3" + (7).to_bytes(8) + epoch + b"\0\2hi" + time_ms) == (7, "hi")
    assert commit_of(b"\0\4" + (7).to_bytes(8) + epoch + b"\x03hi" + time_ms + b"\0") == (7, "hi")
    long = "x" * 300
    assert commit_of(b"\0\4" + (7).to_bytes(8) + epoch + b"\xad\x02" + long.encode() + time_ms) == (7, long)
