"""Whatever Avro's schema and the values are: what fastavro wrote is what decode_avro gives, each record for itself."""

import fastavro
from fakes.avro import encoded, topics
from fakes.records import records
from hypothesis import given
from hypothesis import strategies as st

from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.fused import FusedSteps

READ = Pipeline.read_kafka("orders", bootstrap_servers="localhost:9092")


@given(topics(), st.none() | st.integers(0, 2**32 - 1), st.binary(max_size=8) | st.none())
def test_what_was_written_is_decoded_whatever_is_beside_it(topic, schema_id, other):
    avro, rows = topic
    parsed = fastavro.parse_schema(avro)
    frame = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")
    values = [frame + encoded(parsed, row) for row in rows]
    pipeline = READ.decode_avro(avro, schema_id=schema_id, on_error="skip")
    outcome = FusedSteps(pipeline.check().steps).run(records([*values, other, *values]))
    (made,) = outcome.rows
    found = dict(zip(made.origin.tolist(), made.batch.to_pylist(maps_as_pydicts="strict"), strict=True))
    failed = [failure.record for failure in outcome.failures]
    assert (len(rows) in found) != (len(rows) in failed), "one row or one error"
    found.pop(len(rows), None)
    assert [found[n] for n in sorted(found)] == rows * 2
