"""A worker without Ray and brokers: it reports at once, works when its class is made, and commits what was done, also at its end."""

import asyncio
import threading

import pytest
from fakes.loop import in_loop, turns
from fakes.worker import EPOCH, LEADER_EPOCH, MANY, P3, Scene
from waiting import slow_s

from kafka_actors.errors import DisconnectedError
from kafka_actors.events import OffsetReset
from kafka_actors.job.messages import CommitEntry, Drain, Grant, JobFailure, Orders, unpack
from kafka_actors.job.worker.user_function import FunctionSpec


def spec(target, **more):
    return FunctionSpec(target, more.pop("unit", "batch"), 0, more.pop("on_error", "fail"), **more)


class Script(Scene):
    """A scene that answers polls with the orders it is given, one after another, and keeps the reports."""

    def __init__(self, target, *orders, **more):
        config = more.pop("config", {})
        super().__init__(spec(target, **more), **config)
        self.orders, self.reports, self.away = list(orders), [], 0

    async def poll(self, report):
        self.reports.append(report)
        if self.away:
            self.away -= 1
            raise DisconnectedError("the coordinator is away")
        if report.failed is not None:
            self.happens("failed")
        if not self.orders:
            await asyncio.Event().wait()
        return self.orders.pop(0)


def granted(version=1):
    return Orders((1, version), [Grant(P3, EPOCH, 100, end_offset=103)], [], 60.0)


@in_loop
async def test_it_reports_before_its_class_is_made_and_is_ready_after_that():
    scene = None

    class Slow:
        def __init__(self):
            scene.happens("made")

        def __call__(self, batch): ...

    scene = Script(Slow, granted(), granted(2))
    await scene.worker.start()
    await scene.until("committed [103]")
    assert scene.reports[0].ready is False
    assert scene.worker.pong(1).ready
    await scene.worker.close()


@in_loop
async def test_what_its_constructor_raises_comes_out_of_start_and_is_reported():
    class Broken:
        def __init__(self):
            raise ValueError("no model")

        def __call__(self, batch): ...

    scene = Script(Broken)
    with pytest.raises(ValueError, match="no model"):
        await scene.worker.start()
    await scene.until("failed")
    failed = next(report.failed for report in scene.reports if report.failed)
    assert unpack(failed, JobFailure).text == "ValueError: no model"
    await scene.worker.close()


@in_loop
async def test_a_record_that_fails_for_good_is_reported_while_another_call_is_in_hand():
    """It may take minutes, or hang: the job would stand still, and then its worker be ended as stuck, without a word of the failure."""
    began, go_on = threading.Event(), threading.Event()

    def call(message):
        if message.value == b"no":
            began.set()
            go_on.wait(slow_s(10))
        else:
            assert began.wait(slow_s(10))
            raise ValueError("no good")

    scene = Script(call, granted(), config={"ordering": "key", "concurrency": 2}, unit="message")
    await scene.worker.start()
    await scene.until("failed")
    assert not go_on.is_set()
    go_on.set()
    await scene.until("committed [101]")
    await scene.worker.close()


@in_loop
async def test_a_coordinator_that_is_away_is_asked_again(monkeypatch):
    monkeypatch.setattr("kafka_actors.job.worker.worker.RECONNECT_S", 0)
    scene = Script(lambda batch: None, granted())
    scene.away = 3
    await scene.worker.start()
    await scene.until("committed [103]")
    assert len(scene.reports) > 3
    await scene.worker.close()


@in_loop
async def test_how_far_others_are_is_known_while_a_new_coordinator_has_no_orders_yet():
    """Else a worker would run ahead of those that share its partitions, without end, until it is told again."""
    scene, followed = Script(lambda batch: None), []
    scene.worker._processing.follow = followed.append
    for orders in (
        Orders((1, 1), [], [], 60.0, watermarks=[(P3, 7)]),
        Orders((2, 0), [], [], 60.0, hold=True),
        Orders((2, 1), [], [], 60.0),
    ):
        await scene.worker._apply(orders)
    assert followed == [[(P3, 7)], []]
    await scene.worker.close()


@in_loop
async def test_where_reading_starts_and_where_it_is_reset_to_is_committed_with_its_leader_epoch():
    scene = Script(lambda batch: None)
    await scene.worker._apply(Orders((1, 1), [Grant(P3, EPOCH)], [], 60.0))
    scene.worker._report(0.0)
    assert scene.worker._assignment.commits() == [CommitEntry(P3, EPOCH, 100, LEADER_EPOCH)]
    scene.worker._on_event(OffsetReset(*P3, 100, 900, "out_of_range", 800))
    assert scene.worker._assignment.commits() == [CommitEntry(P3, EPOCH, 900, LEADER_EPOCH)]
    await scene.worker.close()


@in_loop
async def test_a_drained_partition_is_committed_and_then_missing_from_the_next_report():
    scene = Script(lambda batch: scene.happens("called"), granted())
    await scene.worker.start()
    await scene.until("called")
    scene.orders.append(Orders((1, 2), [], [Drain(P3, EPOCH)], 60.0))
    asked = len(scene.reports)
    await scene.worker._report_now()
    await scene.until("committed [103]")
    async with asyncio.timeout(60):
        while not any(not report.holdings for report in scene.reports[asked:]):
            await turns(1)
    await scene.worker.close()


@in_loop
async def test_a_function_that_raises_is_reported_with_the_place():
    def refuse(batch):
        raise ValueError("no good")

    scene = Script(refuse, granted())
    await scene.worker.start()
    await scene.until("failed")
    failed = next(report.failed for report in scene.reports if report.failed)
    text = unpack(failed, JobFailure).text
    assert text.startswith("ProcessError: ")
    assert "orders" in text
    assert "no good" in text
    await turns(MANY)
    assert "committed [103]" not in scene.seen
    await scene.worker.close()


@in_loop
async def test_closing_commits_nothing():
    scene = Script(lambda batch: scene.happens("called"), granted())
    scene.commit = None  # a commit would raise
    await scene.worker.start()
    await scene.until("called")
    await scene.worker.close()
    assert scene.seen == ["called"]


@in_loop
async def test_its_answer_to_a_ping_says_how_long_the_call_in_hand_lasts():
    scene = Script(lambda batch: None)
    assert scene.worker.pong(7).wiring == 7
    assert scene.worker.pong(7).busy_s is None
    scene.worker._processing.counters.call_began(P3, scene.worker._clock() - 5.0)
    assert scene.worker.pong(8).busy_s >= 5.0
    assert repr(scene.worker).startswith("<Worker w ")
    await scene.worker.close()


@in_loop
async def test_a_call_that_waits_for_a_registry_is_not_called_stuck_however_long_that_takes():
    class Waits:
        why = "waits for the registry: stage decode: no answer"

        def __call__(self, batch): ...

        def waits_for(self, partition):
            return self.why if partition == P3 else ""

        def new_schemas(self):
            return []

    scene = Script(Waits)
    await scene.worker.start()
    scene.worker._processing.counters.call_began(P3, scene.worker._clock() - 500.0)
    assert scene.worker.pong(1).busy_s == 0.0
    Waits.why = ""
    assert 0.0 <= scene.worker.pong(1).busy_s < 400.0
    await scene.worker.close()


@in_loop
async def test_a_partition_that_workers_could_share_is_committed_soon_after_its_begin():
    """It is dealt to them once the group has an offset of it."""
    began = Orders((1, 1), [Grant(P3, EPOCH)], [], 60.0)
    scene = Script(
        lambda batch: None, began, config={"ordering": "key", "auto_commit_interval_ms": 3_600_000}
    )
    await scene.worker.start()
    await scene.until_any(lambda seen: seen.startswith("committed"))
    await scene.worker.close()


@in_loop
async def test_a_partition_that_workers_could_share_is_committed_soon_also_where_the_worker_had_none_before():
    scene = Script(
        lambda batch: None,
        Orders((1, 1), [], [], 60.0),
        config={"ordering": "key", "auto_commit_interval_ms": 3_600_000},
    )
    await scene.worker.start()
    await turns(MANY)
    scene.orders.append(Orders((1, 2), [Grant(P3, EPOCH)], [], 60.0))
    await scene.worker._report_now()
    await scene.until_any(lambda seen: seen.startswith("committed"))
    await scene.worker.close()
