"""A dead letter is the record as it was, and says where it came from and why it is here."""

from fakes.records import records

from kafka_actors.sinks.dead_letters import dead_letters


def test_key_value_and_headers_are_the_records_and_more_headers_say_the_rest():
    source = records(
        [b"v", None],
        keys=[None, b"k"],
        headers=[[("trace", b"1"), ("trace", None), ("empty", b"")], None],
    )
    made = dead_letters(source, ["decode_json", "score"], ["no JSON", "bad \ud800 " + "x" * 2000], "revenue")
    assert made.schema.names == ["key", "value", "headers"]
    assert made["key"].to_pylist() == [None, b"k"]
    assert made["value"].to_pylist() == [b"v", None]
    first, second = ([(h["key"], h["value"]) for h in row] for row in made["headers"].to_pylist())
    assert first == [
        ("trace", b"1"),
        ("trace", None),
        ("empty", b""),
        ("kafka_actors.error.topic", b"orders"),
        ("kafka_actors.error.partition", b"3"),
        ("kafka_actors.error.offset", b"100"),
        ("kafka_actors.error.timestamp", b"1700000000000"),
        ("kafka_actors.error.group", b"revenue"),
        ("kafka_actors.error.stage", b"decode_json"),
        ("kafka_actors.error.reason", b"no JSON"),
    ]
    said = dict(second)["kafka_actors.error.reason"]
    assert said.startswith(b"bad \\ud800 xxx")
    assert len(said) < 1100
