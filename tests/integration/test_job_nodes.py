"""A job over several nodes of a Ray cluster: each node a raylet of its own on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
from waiting import slow_s

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

# In a process of its own: it joins another Ray cluster than the session's tests do.
SCRIPT = textwrap.dedent(
    """
    import json, sys, time
    import ray
    from ray.cluster_utils import Cluster
    import kafka_actors as ka

    servers, topic, group, resources = sys.argv[1:5]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=2, resources={"scoring": 2})
        ray.init(address=cluster.address, log_to_driver=False)
        job = ka.Job(
            topics=[topic], group_id=group, bootstrap_servers=servers, process=lambda batch: None, workers=4,
            resources_per_worker=json.loads(resources), config={"worker_buffer_bytes": 16 << 20},
        )
        with job.start() as running:
            deadline = time.monotonic() + 600
            while (status := running.status()).lag or status.records < 4000:
                assert time.monotonic() < deadline, status
                time.sleep(0.2)
            nodes = {w.node for w in status.workers}
            assert len(nodes) == 2 and ray.get_runtime_context().get_node_id() not in nodes, nodes
            assert nodes == set(status.connections), (nodes, status.connections)
            assert all(w.partitions for w in status.workers), status.workers
        print("spread over", len(nodes), "nodes")
    finally:
        ray.shutdown()
        cluster.shutdown()
    """
)


@pytest.mark.slow
@pytest.mark.parametrize("resources", [{"resources": {"scoring": 1}}, {}], ids=["asked", "nothing_asked"])
def test_workers_spread_over_nodes_and_connection_actors_stand_on_their_nodes(
    kafka_cluster, kafka_topic, produce, group_id, resources
):
    """None stands on the head, which has no CPUs, also where workers ask for nothing."""
    topic = kafka_topic(8)
    produce(topic, [b"%d" % n for n in range(4_000)])
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT,
            kafka_cluster.bootstrap_servers,
            topic,
            group_id,
            json.dumps(resources),
        ],
        capture_output=True,
        text=True,
        timeout=slow_s(170),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "spread over 2 nodes" in done.stdout
