from types import SimpleNamespace

import pytest

from kafka_actors.job.messages import ActorInfo
from kafka_actors.job.supervisor.machines.supervision import ActorKey
from kafka_actors.ray import runtime
from kafka_actors.ray.runtime import CLASSES, class_of


@pytest.mark.parametrize("kind", CLASSES)
def test_the_class_of_each_kind_of_actor_is_there(kind: str) -> None:
    assert class_of(kind).__name__ == CLASSES[kind][1]


@pytest.mark.parametrize(("free", "starting"), [(0.5, False), (3.8, True)])
def test_a_worker_without_a_place_though_there_is_room_waits_for_its_process(free, starting, monkeypatch):
    cluster = SimpleNamespace(
        nodes=list,
        get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "here"),
        cluster_resources=lambda: {"CPU": 4.0, "object_store_memory": 1e9},
        available_resources=lambda: {"CPU": free},
    )
    monkeypatch.setattr(runtime, "ray", cluster)
    said = runtime.RayRuntime({"num_cpus": 1}).why_not_placed(ActorKey("worker", 2))
    assert said.startswith(f"worker-2 needs num_cpus=1; the Ray cluster has CPU {free} of 4 free")
    assert ("its process is still starting, or no single node has all of that free" in said) == starting


def test_what_a_worker_needs_is_told_without_its_runtime_environment(monkeypatch):
    """The line is on the status page and in logs, and variables of the environment are where secrets are."""
    cluster = SimpleNamespace(
        nodes=list,
        get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "here"),
        cluster_resources=lambda: {"CPU": 4.0, "scoring": 1.0},
        available_resources=dict,
    )
    monkeypatch.setattr(runtime, "ray", cluster)
    wanted = {
        "num_cpus": 2,
        "num_gpus": 0,
        "resources": {"scoring": 1},
        "accelerator_type": "L4",
        "runtime_env": {"env_vars": {"API_KEY": "hush-hush"}},
    }
    said = runtime.RayRuntime(wanted).why_not_placed(ActorKey("worker", 0))
    assert said.startswith(
        "worker-0 needs num_cpus=2, resources={'scoring': 1}, accelerator_type=L4; the Ray"
    )
    assert "scoring 0 of 1 free" in said
    only = runtime.RayRuntime({"runtime_env": wanted["runtime_env"]}).why_not_placed(ActorKey("worker", 0))
    assert only.startswith("worker-0 needs a process; ")


@pytest.mark.parametrize(("over_client", "ended"), [(False, [7]), (True, [])])
def test_a_driver_over_ray_client_takes_no_process_of_its_machine_for_an_actor(
    over_client, ended, monkeypatch
):
    """Its machine is none of the cluster's nodes: of a busy actor it would say that its process is gone, and end another under its pid."""
    signalled: list[int] = []
    cluster = SimpleNamespace(
        nodes=list,
        get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "here"),
        kill=lambda actor, no_restart: None,
    )
    monkeypatch.setattr(runtime, "ray", cluster)
    monkeypatch.setattr(runtime, "ray_client", SimpleNamespace(is_connected=lambda: over_client))
    monkeypatch.setattr(runtime, "end_process", signalled.append)
    made = runtime.RayRuntime({})
    made.kill(SimpleNamespace(raw=None), ActorInfo(7, "here"))
    assert signalled == ended
    assert (made.own_node == "here") is not over_client
