"""The Ray that a program starts for its jobs, on the machine where they run."""

import os
import subprocess
import sys

from waiting import slow_s

PROGRAM = """
import os
import ray
from kafka_actors.ray.cluster import connect_to_ray

assert connect_to_ray()

@ray.remote(num_cpus=0)
class Actor:
    def niceness(self):
        return os.nice(0)

print(os.nice(0), ray.get(Actor.remote().niceness.remote()))
"""


def test_actors_of_a_rays_own_program_have_its_priority():
    """Ray's own default would have them wait for whatever else the machine does: brokers, producers, the tests of other people."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=slow_s(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    program, actor = done.stdout.split()[-2:]
    assert actor == program
