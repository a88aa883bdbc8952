"""Names of a pipeline's data sources in sessions, and its stages in a Python process."""

import asyncio
import gc

from fakes.records import records

from kafka_actors.pipeline import Pipeline
from kafka_actors.spark.engine import pipeline_source
from kafka_actors.spark.engine.pipeline_source import ProcessStages, SourceNames


class Session:
    pass


def test_names_are_given_to_one_at_a_time_and_used_again():
    session = Session()
    first, second = SourceNames(session), SourceNames(session)
    taken = [first.take(), second.take(), first.take()]
    assert len(set(taken)) == 3
    first.give_back()
    first.give_back()
    third = SourceNames(session)
    again = [third.take(), third.take(), third.take()]
    assert {taken[0], taken[2]} < set(again)
    assert taken[1] not in again


def test_a_name_that_one_session_has_is_never_registered_in_another():
    one, other = Session(), Session()
    taken = set()
    for session in (one, other, one, other):
        names = SourceNames(session)
        taken.add((session, names.take()))
        names.give_back()
    assert len(taken) == 2
    assert len({name for _, name in taken}) == 2


def test_the_names_of_a_session_that_is_gone_are_forgotten():
    session = Session()
    names = SourceNames(session)
    names.take()
    names.give_back()
    gc.collect()  # sessions of other tests
    before = len(pipeline_source._free)
    del session, names
    gc.collect()
    assert len(pipeline_source._free) == before - 1


def test_async_stages_of_a_process_have_one_event_loop_as_long_as_their_objects():
    loops = []

    class Session:
        async def __call__(self, batch):
            loops.append(asyncio.get_running_loop())
            await asyncio.sleep(0)
            return batch.slice(1)

        async def close(self):
            loops.append(asyncio.get_running_loop())

    read = Pipeline.read_kafka("orders", bootstrap_servers="localhost:9092").decode_json("id BIGINT")
    stages = ProcessStages(read.map_batches(Session, schema="id BIGINT").check().steps, 0)
    for _ in range(2):
        output = stages.run(records([b'{"id": %d}' % n for n in range(3)]), None)
        assert [rows.batch["id"].to_pylist() for rows in output.rows] == [[1, 2]]
    stages.close()
    assert len(loops) == 3
    assert len(set(loops)) == 1
    assert loops[0].is_closed()
