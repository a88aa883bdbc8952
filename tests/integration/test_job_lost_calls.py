"""Calls of the supervisor that Ray loses, on their way there or back: `RAY_testing_rpc_failure` has it lose them."""

import json
import os
import signal
import time

import pytest
import ray
from waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.kafka, pytest.mark.slow]

LOST_PERCENT = 10
"""Share of the calls that are lost, and as many of the answers."""


def test_one_call_in_five_is_lost_and_nobody_is_replaced(scene):
    losing = {
        "CoreWorkerService.grpc_client.PushTask": {
            "num_failures": -1,
            "req_failure_prob": LOST_PERCENT,
            "resp_failure_prob": LOST_PERCENT,
        }
    }
    variables = {
        "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
        "RAY_testing_rpc_failure": json.dumps(losing),
        "RAY_testing_rpc_failure_avoid_intra_node_failures": "0",
    }
    driver = scene.driver(workers=2, variables=variables).started(150)
    scene.under_load()
    scene.flowing(60)
    time.sleep(20)
    now = driver.ask()
    assert any("RpcFailureManager" in line for line in driver.complained), "the control: Ray loses calls"
    assert now["state"] == "running"
    assert all(name.endswith(".1") for name in now["pids"] if not name.startswith("spare")), now["timeline"]
    worker = driver.actors["worker-0.1"]
    scene.forgive(worker)
    os.kill(worker, signal.SIGKILL)
    scene.flowing(60)
    until(
        lambda: all(driver.ask()["workers"].get(w) for w in ("worker-0.2", "worker-1.1")), 60, "both at work"
    )
    driver.send(signal.SIGTERM)
    assert driver.wait(40) == 0, "".join(driver.complained)[-3000:]
    scene.load.stop()
    assert scene.missing(scene.committed()) == {}
