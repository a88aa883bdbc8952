"""Records on which the function failed for good: halted at, skipped, or sent as dead letters."""

import threading

import pyarrow as pa
import pytest
from fakes.errors import NoText

from kafka_actors.errors import ProcessError, StageError
from kafka_actors.events import RecordsDeadLettered, RecordsSkipped
from kafka_actors.job.messages import Grant, Orders
from kafka_actors.job.worker.calls import Cut
from kafka_actors.job.worker.error_policy import ErrorPolicy, behind_all
from kafka_actors.job.worker.machines.rebatch import CallBatch
from kafka_actors.job.worker.machines.worker_assignment import HeldState, WorkerAssignment
from kafka_actors.job.worker.outputs import OutputsSpec
from kafka_actors.job.worker.user_function import CallFailed, FunctionSpec, UserFunction
from kafka_actors.types import TopicPartition

P0, EPOCH = TopicPartition("t", 0), (1, 1)
FAILURE = CallFailed(ValueError("no good"), 2, 3)


class Scene:
    def __init__(self, on_error, topic=None):
        self.events, self.sent = [], []
        self.assignment = WorkerAssignment()
        self.assignment.apply(Orders((1, 1), [Grant(P0, EPOCH, 0)], [], 60.0))
        function = UserFunction(FunctionSpec(print, "batch", 0, on_error, OutputsSpec((), topic)))
        function.outputs.dead_letter = lambda records, error: self.sent.append(records["offset"].to_pylist())
        self.policy = ErrorPolicy(function, self.assignment, threading.Lock(), self.events.append, Cut())

    def after(self, failure=FAILURE):
        return self.policy.after(P0, EPOCH, CallBatch(records(2, 6), 6), failure, 4)


def records(first, behind):
    return pa.record_batch({"offset": pa.array(range(first, behind), pa.int64())})


def test_a_failure_halts_the_partition_and_names_the_place():
    scene = Scene("fail")
    with pytest.raises(ProcessError, match=r"t-0.*2.*3.*no good") as raised:
        scene.after()
    assert raised.value.__cause__ is FAILURE.cause
    held = scene.assignment.held[P0]
    assert (held.state, held.processed) == (HeldState.HALTED, 2)


def test_the_error_of_a_pipelines_stage_comes_out_as_it_is():
    error = StageError(
        topic="t", partition=0, first_offset=2, last_offset=2, attempts=1, message="no", stage="s"
    )
    with pytest.raises(StageError) as raised:
        Scene("fail").after(CallFailed(error, 2, 3))
    assert raised.value is error


def test_skipped_records_are_an_event_and_the_rest_is_left():
    scene = Scene("skip")
    assert scene.after().batch["offset"].to_pylist() == [4, 5]
    assert scene.events == [RecordsSkipped("t", 0, 2, 3, "ValueError: no good")]
    assert scene.assignment.held[P0].processed == 4


def test_dead_letters_are_sent_and_told():
    scene = Scene("dead_letter", "dlq")
    scene.after()
    assert scene.sent == [[2, 3]]
    assert scene.events == [RecordsDeadLettered("t", 0, 2, 3, 2, "dlq", "ValueError: no good")]


def test_put_aside_moves_no_offset():
    scene = Scene("skip")
    scene.policy.put_aside(P0, records(2, 4), FAILURE, 1)
    assert scene.events == [RecordsSkipped("t", 0, 2, 3, "ValueError: no good")]
    assert scene.assignment.held[P0].processed is None
    with pytest.raises(ProcessError, match="no good"):
        Scene("fail").policy.put_aside(P0, records(2, 4), FAILURE, 1)


def test_a_piece_without_its_records_keeps_the_position_behind_it():
    left = behind_all(CallBatch(records(0, 3), 9))
    assert (left.batch.num_rows, left.next_offset) == (0, 9)


def test_the_policy_holds_for_an_error_whose_text_cannot_be_made():
    failure = CallFailed(NoText(), 2, 3)
    with pytest.raises(ProcessError, match=r"process failed on t-0 offsets 2-3 after 4 attempts: NoText$"):
        Scene("fail").after(failure)
    scene = Scene("skip")
    scene.after(failure)
    assert scene.events == [RecordsSkipped("t", 0, 2, 3, "NoText")]
    assert failure.continues_in(CallFailed(NoText(), 3, 3))
