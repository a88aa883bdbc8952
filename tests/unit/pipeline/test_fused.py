"""When the user's code fails: tried again, then in halves, until only the records at fault are taken out."""

import asyncio

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fakes.errors import NoText
from fakes.records import records

from kafka_actors.base.bisect import MAX_FAILED_CALLS
from kafka_actors.base.tasks import carried_out_async
from kafka_actors.errors import ProcessError, StageError
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.fused import FailedRecord, FusedSteps, of_policy

SCHEMA = "id BIGINT"
JSON = Pipeline.read_kafka("orders", bootstrap_servers="localhost:9092").decode_json(SCHEMA)


def source(count=100):
    return records([b'{"id": %d}' % n for n in range(count)])


class Failing:
    """Fails for batches with one of these ids; counts its calls."""

    def __init__(self, *bad, error=ValueError, times=10**9):
        self.bad = bad
        self.error = error
        self.times = times
        self.sizes = []

    def __call__(self, batch):
        self.sizes.append(batch.num_rows)
        found = [i for i in batch["id"].to_pylist() if i in self.bad]
        if found and self.times > 0:
            self.times -= 1
            raise self.error(f"no good: {found}")
        return batch


class Awaited:
    """Async function that does what a plain one does, after a turn of the loop."""

    def __init__(self, function):
        self.function = function

    async def __call__(self, batch):
        await asyncio.sleep(0)
        return self.function(batch)


@pytest.fixture(params=["plain", "async"])
def run(request, monkeypatch):
    """Runs a stage with a function, plain or async."""

    def run(function, policy="skip", batch=None, retries=0, naps=None, **more):
        naps = naps if naps is not None else []
        called = function if request.param == "plain" else Awaited(function)
        pipeline = JSON.map_batches(called, schema=SCHEMA, name="score", on_error=policy, **more)
        steps = FusedSteps(pipeline.check().steps, retries=retries, sleep=naps.append)
        assert steps.is_async == pipeline.is_async == (request.param == "async")
        if not steps.is_async:
            return steps.run(batch or source())
        monkeypatch.setattr(asyncio, "sleep", noted(asyncio.sleep, naps))
        return asyncio.run(carried_out_async(steps.calls(batch or source())))

    return run


def noted(sleep, naps):
    async def nap(seconds):
        if seconds:
            naps.append(seconds)
        await sleep(0)

    return nap


def ids(outcome):
    return [i for rows in outcome.rows for i in rows.batch["id"].to_pylist()]


def test_under_fail_it_is_tried_again_and_the_error_says_where(run):
    naps = []
    function = Failing(45)
    with pytest.raises(StageError) as raised:
        run(function, "fail", retries=3, naps=naps)
    error = raised.value
    assert isinstance(error, ProcessError)
    assert (
        str(error)
        == "stage score failed on orders-3 offsets 100-199 after 4 attempts: ValueError: no good: [45]"
    )
    assert (error.stage, error.first_offset, error.last_offset, error.attempts) == ("score", 100, 199, 4)
    assert isinstance(error.__cause__, ValueError)
    assert naps == [0.1, 0.2, 0.4]
    assert function.sizes == [100] * 4


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_the_policy_holds_for_an_error_whose_text_cannot_be_made(run, policy):
    def raises(batch):
        raise NoText

    if policy == "fail":
        with pytest.raises(StageError, match=r"after 2 attempts: NoText$"):
            run(raises, policy, retries=1)
    else:
        assert run(raises, policy, source(1)).failures == [FailedRecord(0, "score", "NoText")]


def test_where_the_caller_counts_all_attempts_but_the_last_raise_at_once():
    naps, function = [], Failing(45)
    stages = JSON.map_batches(function, schema=SCHEMA, name="score", on_error="skip")
    steps = FusedSteps(stages.check().steps, retries=2, sleep=naps.append)
    for attempt in (1, 2):
        with pytest.raises(ValueError, match="no good") as raised:
            steps.run(source(), attempt=attempt)
        assert raised.value.__notes__ == ["raised in stage score"]
    assert function.sizes == [100, 100]
    outcome = steps.run(source(), attempt=3)
    assert [f.record for f in outcome.failures] == [45]
    assert naps == []
    again = ValueError("no good")

    def same(batch):
        raise again

    steps = FusedSteps(JSON.map_batches(same, schema=SCHEMA, name="score").check().steps, retries=2)
    for _ in range(3):
        with pytest.raises(ValueError, match="no good"):
            steps.run(source(), attempt=1)
    assert again.__notes__ == ["raised in stage score"]
    failing = FusedSteps(
        JSON.map_batches(function, schema=SCHEMA, name="score").check().steps, retries=2, sleep=naps.append
    )
    with pytest.raises(StageError, match="after 3 attempts: ValueError: no good"):
        failing.run(source(), attempt=3)


def test_what_no_further_attempt_mends_is_settled_at_the_first():
    stages = JSON.map_batches(lambda batch: batch.select(["id"]), schema="id BIGINT, n INT NOT NULL")
    with pytest.raises(StageError, match="after 1 attempt: CastError"):
        FusedSteps(stages.check().steps, retries=2).run(source(), attempt=1)


def test_the_offset_range_is_that_of_the_rows_that_the_stage_had():
    pipeline = JSON.filter(pc.field("id") >= 40).filter(pc.field("id") < 50)
    with pytest.raises(StageError, match="offsets 140-149"):
        FusedSteps(pipeline.map_batches(Failing(45), schema=SCHEMA).check().steps).run(source())


def test_a_retry_that_ends_well_costs_nothing(run):
    function = Failing(45, times=2)
    outcome = run(function, "skip", retries=3)
    assert ids(outcome) == list(range(100))
    assert outcome.failures == []


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
@pytest.mark.parametrize("bad", [[0], [99], [45], [0, 1, 50, 99]])
def test_only_the_records_at_fault_are_taken_out_and_the_order_holds(run, policy, bad):
    function = Failing(*bad)
    outcome = run(function, policy)
    assert ids(outcome) == [n for n in range(100) if n not in bad]
    assert [(f.record, f.stage, f.reason) for f in outcome.failures] == [
        (n, "score", f"ValueError: no good: [{n}]") for n in bad
    ]
    assert [o for rows in outcome.rows for o in rows.origin.tolist()] == ids(outcome)


def test_many_records_at_fault_cost_no_others(run):
    scattered, together = range(7, 2000, 150), range(1000, 1300)
    for bad in (scattered, together):
        outcome = run(Failing(*bad), batch=source(2000))
        assert ids(outcome) == [n for n in range(2000) if n not in bad]
        assert [f.record for f in outcome.failures] == list(bad)


def test_where_everything_fails_it_is_not_taken_apart_for_ever(run):
    function = Failing(*range(1000))
    outcome = run(function, batch=source(1000))
    assert len(function.sizes) <= 2 * MAX_FAILED_CALLS
    assert ids(outcome) == []
    assert [f.record for f in outcome.failures] == list(range(1000))


def test_sys_exit_is_an_error_of_the_call(run):
    with pytest.raises(StageError, match="SystemExit: 3"):
        run(lambda batch: (_ for _ in ()).throw(SystemExit(3)), "fail")


def test_a_row_that_belongs_to_no_record_takes_the_whole_batch_with_it():
    def total(batch):
        return pa.record_batch({"id": [pc.sum(batch["id"]).as_py()]})

    pipeline = JSON.map_batches(total, schema=SCHEMA).map_batches(Failing(45), schema=SCHEMA, on_error="skip")
    outcome = FusedSteps(pipeline.check().steps).run(source(10))
    assert [f.record for f in outcome.failures] == list(range(10))


@pytest.mark.parametrize(
    "decoded",
    [lambda pipeline: pipeline.decode_json(SCHEMA), lambda pipeline: pipeline.raw(text=True)],
    ids=["json", "text"],
)
def test_a_value_of_no_single_record_that_can_not_be_decoded_takes_the_whole_batch_with_it(decoded):
    """Else it would be the last record that is skipped, whose own value may be good."""
    read = Pipeline.read_kafka("orders", bootstrap_servers="localhost:9092")
    fewer = decoded(read.map_batches(lambda batch: batch.slice(1), schema=source(1).schema))
    values = records([b"1", b"\xff", b"\xfe", b'{"id": 3}'])
    outcome = FusedSteps(fewer.on_error("skip").check().steps).run(values)
    assert [f.record for f in outcome.failures] == [0, 1, 2, 3]
    assert [part.batch.num_rows for part in outcome.rows] == [1]
    with pytest.raises(StageError) as raised:
        FusedSteps(fewer.check().steps).run(values)
    assert (raised.value.first_offset, raised.value.last_offset) == (100, 103)


def test_a_record_fails_once_however_many_of_its_rows_do():
    pipeline = JSON.flat_map(lambda row: [row, row], schema=SCHEMA).map_batches(
        Failing(2), schema=SCHEMA, on_error="skip"
    )
    outcome = FusedSteps(pipeline.check().steps).run(source(4))
    skipped = of_policy(outcome.failures, {"map_batches(Failing)": "skip"}, "skip")
    assert [f.record for f in skipped] == [2]
    assert ids(outcome) == [0, 0, 1, 1, 3, 3]


def test_a_record_that_one_stage_skips_is_still_the_dead_letter_of_another():
    failures = [FailedRecord(5, "a", "x"), FailedRecord(2, "b", "y"), FailedRecord(5, "b", "z")]
    policies = {"a": "skip", "b": "dead_letter"}
    assert of_policy(failures, policies, "skip") == failures[:1]
    assert of_policy(failures, policies, "dead_letter") == failures[1:]


def awaited(*stages):
    """Runs async stages in a loop, and closes them."""

    async def both():
        steps = FusedSteps(stages)
        output = await carried_out_async(steps.calls(source(4)))
        await carried_out_async(steps.closing())
        return output

    return asyncio.run(both())


def test_stages_before_and_behind_an_async_one_get_what_it_gives_and_all_are_closed():
    seen = []

    class Pool:
        async def __call__(self, batch):
            await asyncio.sleep(0)
            seen.append("called")
            return [batch.slice(0, 1), batch.slice(1)]

        async def close(self):
            await asyncio.sleep(0)
            seen.append("closed")
            raise OSError("gone")

    class Plain:
        def __call__(self, batch):
            return batch

        def close(self):
            seen.append("closed too")

    pipeline = (
        JSON.filter(pc.field("id") > 0).map_batches(Pool, schema=SCHEMA).map_batches(Plain, schema=SCHEMA)
    )
    output = awaited(*pipeline.check().steps)
    assert [rows.batch["id"].to_pylist() for rows in output.rows] == [[1], [2, 3]]
    assert [o for rows in output.rows for o in rows.origin.tolist()] == [1, 2, 3]
    assert seen == ["called", "closed", "closed too"]


def test_a_cancellation_within_an_async_function_is_an_error_of_its_call():
    async def cancelled(batch):
        if batch.num_rows > 1 or batch["id"][0].as_py() == 2:
            raise asyncio.CancelledError
        return batch

    output = awaited(*JSON.map_batches(cancelled, schema=SCHEMA, on_error="skip").check().steps)
    assert ids(output) == [0, 1, 3]
    assert [(f.record, f.reason) for f in output.failures] == [(2, "CancelledError")]
