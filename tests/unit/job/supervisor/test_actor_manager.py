"""An `ActorManager` over actors whose calls get lost, and over nodes that come and go."""

import asyncio

import pytest
from fakes.loop import turns
from fakes.runtime import FakeRuntime
from waiting import slow_s

from kafka_actors.job.messages import CallInHand, CrashReport, DeathsInCall, WorkerPlan, pack, unpack
from kafka_actors.job.supervisor.machines.supervision import ActorKey
from kafka_actors.ray import Job
from kafka_actors.types import TopicPartition

actor_manager = pytest.importorskip("kafka_actors.job.supervisor.actor_manager")
announcements = pytest.importorskip("kafka_actors.job.supervisor.announcements")
runtime = pytest.importorskip("kafka_actors.job.supervisor.runtime")
supervised = pytest.importorskip("kafka_actors.job.supervisor.context")

W0, METADATA, COORDINATOR = ActorKey("worker", 0), ActorKey("metadata"), ActorKey("coordinator")


class Stage:
    """A job of one worker, whose actor manager runs."""

    def __init__(self, place):
        plan = Job(topics="t", group_id="g", bootstrap_servers="h:1", process=print).plan()
        self.place = place
        self.failures = []
        self.now = 0.0
        self.job = supervised.SupervisorContext(plan, place, lambda: self.now, self.failures.append)
        self.actors = actor_manager.ActorManager(self.job, announcements.Announcements(self.job))

    async def __aenter__(self):
        self.actors.want()
        self.job.tasks.create_task(self.actors.run())
        await self.until(self.job.started.done)
        await self.until(lambda: any(a.key.kind == "connection" for a in self.place.made))
        return self

    async def __aexit__(self, *_):
        await turns(5)
        self.job.tasks.cancel()
        await asyncio.sleep(0)

    async def until(self, condition):
        """The clock stands."""
        for _ in range(10_000):
            if condition():
                return
            await turns(1)
        raise AssertionError("it did not come")

    async def goes_on(self, seconds):
        """The clock moves, step by step."""
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            self.actors._wake()
            await turns(20)


def scenario(stage, of):
    async def run():
        async with stage() as made:
            await of(made)
            assert made.failures == []

    asyncio.run(run())


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch):
    monkeypatch.setattr(runtime, "AGAIN_S", 0)
    monkeypatch.setattr(actor_manager, "TOPOLOGY_S", 0)


@pytest.mark.parametrize("method", ["whereabouts", "begin"])
@pytest.mark.parametrize("kind", ["worker", "coordinator", "metadata"])
def test_a_lost_call_at_its_beginning_ends_neither_an_actor_nor_the_job(kind, method):
    place = FakeRuntime()
    place.lost[kind, method] = 2

    async def of(stage):
        assert stage.job.running.begun(ActorKey(kind)) is not None
        assert [actor.name for actor in place.made if actor.key.kind == kind] == [place.last(kind).name]

    scenario(lambda: Stage(place), of)


def test_a_replacement_whose_first_call_is_lost_begins_and_the_job_goes_on():
    place = FakeRuntime()

    async def of(stage):
        place.lost["worker", "whereabouts"] = 1
        place.last("worker").ended.set_result(runtime.Death("its process is gone"))
        await stage.until(lambda: stage.job.machine.restarts.get(W0) == 1)
        await stage.until(lambda: stage.job.running.begun(W0) is not None)
        await stage.goes_on(120)

    scenario(lambda: Stage(place), of)


@pytest.mark.parametrize("kind", ["worker", "connection"])
def test_an_actor_whose_pings_are_lost_for_a_moment_is_pinged_again(kind):
    place = FakeRuntime()

    async def of(stage):
        actor = place.last(kind)
        await stage.goes_on(2)
        place.lost[kind, "ping"] = 3
        await stage.goes_on(10)
        assert place.lost[kind, "ping"] == 0
        before = actor.calls["ping"]
        await stage.goes_on(400)
        assert actor.calls["ping"] > before
        assert actor.name not in place.killed

    scenario(lambda: Stage(place), of)


def test_a_library_actor_all_of_whose_pings_are_lost_does_not_count_as_answering():
    place = FakeRuntime()

    async def of(stage):
        place.lost["connection", "ping"] = 10**6
        await stage.goes_on(20)
        assert "connection-7.1" in place.killed

    scenario(lambda: Stage(place), of)


def test_what_the_coordinator_and_the_metadata_actor_are_told_reaches_them_though_calls_get_lost():
    place = FakeRuntime()

    async def of(stage):
        place.lost["coordinator", "set_plan"] = 2
        place.lost["metadata", "set_nodes"] = place.lost["metadata", "topology"] = 2
        stage.place.node = "another"
        place.last("worker").ended.set_result(runtime.Death("its process is gone"))
        await stage.until(lambda: ActorKey("connection", 7, "another") in stage.job.running)

        def told():
            return unpack(place.last("coordinator").told["set_plan"][0], WorkerPlan)

        await stage.until(lambda: list(told().capacities) == ["worker-0.2"])

    scenario(lambda: Stage(place), of)


@pytest.mark.parametrize("runs", [True, False])
def test_where_the_call_that_tells_of_a_death_may_only_be_lost_the_process_is_looked_at(runs):
    place = FakeRuntime()

    async def of(stage):
        place.runs = runs
        await stage.goes_on(2)
        worker = place.last("worker")
        ended, worker.ended = worker.ended, asyncio.get_running_loop().create_future()
        ended.set_result(runtime.Death("gone", uncertain=True))
        await stage.goes_on(2)
        assert (worker.info.pid,) in [actor.told.get("runs") for actor in place.made]
        assert (place.last("worker") is worker) == runs

    scenario(lambda: Stage(place), of)


def test_of_a_node_that_is_gone_nothing_is_wanted_any_more():
    place = FakeRuntime()

    async def of(stage):
        stage.place.node = "another"
        made = len(place.made)
        for actor in place.made:
            if actor.info.node == "far":
                actor.ended.set_result(runtime.Death("its node is gone", node_gone=True))
        await stage.until(lambda: ActorKey("connection", 7, "another") in stage.job.running)
        await stage.goes_on(20)
        assert "far" not in {actor.info.node for actor in place.made[made:]}

    scenario(lambda: Stage(place), of)


@pytest.mark.parametrize("node_gone", [True, False])
def test_a_worker_of_a_silent_node_that_ray_calls_dead_is_named_until_its_lease_is_over(node_gone):
    place = FakeRuntime()

    async def of(stage):
        def told():
            return unpack(place.last("coordinator").told["set_plan"][0], WorkerPlan)

        await stage.goes_on(2)
        place.lost["worker", "ping"] = place.lost["connection", "ping"] = place.lost["spare", "ping"] = 10**6
        await stage.goes_on(8)
        assert (told().silent, list(told().capacities)) == (["worker-0.1"], ["worker-0.1"])
        assert place.killed == []
        place.last("worker").ended.set_result(
            runtime.Death("gone", node_gone=node_gone, node_unknown=not node_gone)
        )
        await stage.until(lambda: "worker-0.1" not in told().capacities)
        assert ("worker-0.1" in told().silent) == node_gone
        await stage.goes_on(45)
        await stage.actors._announcements.send_plan()
        assert "worker-0.1" not in told().silent

    scenario(lambda: Stage(place), of)


def test_a_node_on_which_no_port_listens_any_more_is_gone_though_ray_has_not_said_so():
    place = FakeRuntime()

    async def of(stage):
        stage.place.node = "another"
        made = len(place.made)
        for actor in place.made:
            if actor.info.node == "far":
                actor.ended.set_result(runtime.Death("gone", node_unknown=True))
        await stage.until(lambda: ActorKey("connection", 7, "another") in stage.job.running)
        await stage.goes_on(20)
        late = [actor for actor in place.made[made:] if actor.info.node == "far" and not actor.calls["begin"]]
        assert all(actor.name in place.killed or actor.calls["quit"] for actor in late)
        assert {key.node for key in stage.job.running if key.node} == {"another"}

    scenario(lambda: Stage(place), of)


def test_actors_that_have_not_quit_when_the_time_of_a_stop_is_over_are_killed():
    place = FakeRuntime()

    async def frozen(actor):
        await asyncio.Event().wait()

    async def of(stage):
        await turns(20)  # what was begun for the start is sent
        place.instead["worker", "quit"] = frozen
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await stage.actors.quit_all()
        assert place.last("worker").name in place.killed

    scenario(lambda: Stage(place), of)


@pytest.mark.parametrize("turns_before", [0, 20], ids=["at once", "in its close"])
def test_a_worker_that_is_dismissed_while_the_job_stops_is_killed(turns_before):
    """It is none of those any more that are asked to quit, and its process would live on."""
    place = FakeRuntime()

    async def closing(actor):
        await asyncio.Event().wait()

    async def of(stage):
        await turns(20)
        place.instead["worker", "close"] = closing
        stage.job.machine.want(stage.job.running.keys() - {W0}, started=True)
        stage.actors.poll()
        assert W0 not in stage.job.running
        await turns(turns_before)
        async with asyncio.timeout(slow_s(10)):
            await stage.actors.quit_all()
        await turns(1)
        assert place.last("worker").calls["close"] == (turns_before > 0)
        assert place.last("worker").name in place.killed

    scenario(lambda: Stage(place), of)


def test_workers_get_nothing_before_the_connections_of_their_node_are_up():
    place = FakeRuntime()

    async def of(stage):
        def told():
            return unpack(place.last("coordinator").told["set_plan"][0], WorkerPlan)

        await stage.until(lambda: "set_plan" in place.last("coordinator").told)
        await stage.until(lambda: told().unconnected == [])
        stage.place.node = "another"
        place.lost["connection", "begin"] = 10**6
        place.last("worker").ended.set_result(runtime.Death("its process is gone"))
        await stage.until(lambda: stage.job.running.begun(W0) is not None)
        await stage.until(lambda: told().unconnected == ["worker-0.2"])
        place.lost["connection", "begin"] = 0
        await stage.until(lambda: told().unconnected == [])
        place.last("connection").ended.set_result(runtime.Death("its process is gone"))
        await stage.until(lambda: place.last("connection").name == "connection-7.2")
        await stage.actors._announcements.send_plan()
        assert told().unconnected == [], "what it has stays with it"

    scenario(lambda: Stage(place), of)


def test_a_worker_that_is_to_go_and_dies_is_not_replaced():
    """A replacement would wait for a place where the worker's node goes with it, and Ray's autoscaler bring a node for it."""
    place = FakeRuntime()

    async def of(stage):
        gone, running = ActorKey("worker", 1), stage.job.running
        stage.job.scaling.set_workers(2)
        stage.actors.want()
        await stage.until(lambda: running.begun(gone) is not None)
        made = len(place.made)
        stage.job.scaling.set_workers(1)
        running.retiring = {1}
        stage.actors.want()
        await stage.goes_on(2)
        place.last("worker").ended.set_result(runtime.Death("its node is gone"))
        await stage.goes_on(20)
        assert [actor.name for actor in place.made[made:] if actor.key.kind == "worker"] == []
        assert (running.retiring, gone in running, stage.job.machine.restarts) == (set(), False, {})
        assert (
            "worker-1.1" not in unpack(place.last("coordinator").told["set_plan"][0], WorkerPlan).capacities
        )

    scenario(lambda: Stage(place), of)


def test_an_actor_on_another_node_is_ended_by_one_that_answers_there():
    place = FakeRuntime()

    async def of(stage):
        worker, link = place.last("worker"), place.last("connection")
        await stage.goes_on(2)
        place.lost["worker", "ping"] = 10**6
        place.runs = False
        await stage.goes_on(5)
        assert link.told["runs"] == (worker.info.pid,)
        enders = [actor for actor in place.made if "end" in actor.told]
        assert [(ender.info.node, ender.told["end"]) for ender in enders] == [("far", (worker.info.pid,))]
        assert place.killed == [worker.name]

    scenario(lambda: Stage(place), of)


def test_the_call_in_which_a_worker_died_is_counted_before_its_partitions_go_to_others():
    place, orders = FakeRuntime(), TopicPartition("orders", 3)

    async def of(stage):
        place.words = pack(CrashReport([CallInHand(orders, 40, 59)], "exit code 3"))
        await stage.until(lambda: stage.job.running.connected)
        plans = []
        await stage.until(lambda: "set_plan" in place.last("coordinator").told)
        place.last("worker").ended.set_result(runtime.Death("its process is gone"))

        def without_it():
            plans.append(unpack(place.last("coordinator").told["set_plan"][0], WorkerPlan))
            return "worker-0.1" not in plans[-1].capacities

        await stage.until(without_it)
        assert plans[-1].died == [DeathsInCall(orders, 40, 59, 1, "exit code 3")]
        assert place.last("connection").told["crash_report"] == ("worker-0.1",)
        (note,) = [e.text for e in stage.job.report._timeline.after() if e.kind == "restart"]
        assert (
            "its process is gone: exit code 3: in the call with orders-3 offsets 40 to 59, try 1 of 4" in note
        )

    scenario(lambda: Stage(place), of)


@pytest.mark.parametrize("calls", [[CallInHand(TopicPartition("orders", 3), 40, 59)], []])
def test_the_call_for_which_a_worker_is_ended_counts_as_one_in_which_it_died(calls):
    """It may be over by then."""
    place = FakeRuntime()

    async def of(stage):
        worker, coordinator = place.last("worker"), place.last("coordinator")
        place.words = pack(CrashReport(calls))
        await stage.goes_on(2)
        place.busy_s = 300.5
        await stage.until(lambda: "set_plan" in coordinator.told)
        plans = []

        def without_it():
            plans.append(unpack(coordinator.told["set_plan"][0], WorkerPlan))
            return "worker-0.1" not in plans[-1].capacities

        stage.now += 1
        stage.actors._wake()
        await turns(20)
        place.busy_s = None
        await stage.goes_on(1)
        await stage.until(without_it)
        reason = "a call of process lasts for more than 300 s"
        assert plans[-1].died == [DeathsInCall(*call_of(call), 1, reason) for call in calls]
        (note,) = [e.text for e in stage.job.report._timeline.after() if e.kind == "restart"]
        counted = ": in the call with orders-3 offsets 40 to 59, try 1 of 4" if calls else ""
        assert note == f"worker-0.1 is ended: {reason}{counted}"
        assert place.killed == [worker.name]

    scenario(lambda: Stage(place), of)


def call_of(call):
    return call.partition, call.first, call.last


@pytest.mark.parametrize("kind", ["worker", "coordinator", "metadata", "connection"])
def test_how_ray_says_that_a_process_ended_is_told_though_nobody_has_its_call_record(kind):
    """Ray's memory monitor may end several processes at once, also those that have the worker's record."""
    place = FakeRuntime()

    async def of(stage):
        died = place.last(kind)
        died.ended.set_result(runtime.Death("its process is gone", how="ended by Ray"))
        notes = lambda: [e.text for e in stage.job.report._timeline.after() if e.kind == "restart"]  # noqa: E731
        await stage.until(notes)
        assert notes() == [f"{died.name} died (its process is gone: ended by Ray); a replacement starts"]

    scenario(lambda: Stage(place), of)
