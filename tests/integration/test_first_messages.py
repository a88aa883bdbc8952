"""First messages that a process decodes, in several threads at once: a worker has one for each broker."""

import os
import subprocess
import sys
from pathlib import Path

from waiting import slow_s

PROCESSES = 4

FIRST = """
import sys, threading
from fakes.arbitrary import filled
from kafka_actors.job.transport.shm_client import PullResponse, PullRequest
from kafka_actors.job.messages import Grant, HeldReport, Orders, Report, pack, unpack
from kafka_actors.fetch.messages import FetchedPartition, FetchReply, Pull, PartitionFetch
from kafka_actors.protocol import ApiKey, decode_message, message_class
from kafka_actors.types import TopicPartition

THREADS = 8
P, EPOCH = TopicPartition("t", 0), (1, 1)
mine = [
    PullResponse(FetchReply(1, 1, [FetchedPartition("t", 0, EPOCH, 0, 1)])),
    PullRequest(Pull(1, [PartitionFetch("t", 0, EPOCH, 0, 1)])),
    Orders(EPOCH, [Grant(P, EPOCH)], [], 1.0),
    Report("w", EPOCH, True, [HeldReport(P, EPOCH)]),
]
first = [lambda data=pack(message), kind=type(message): unpack(data, kind) for message in mine]
for api in ApiKey:
    kind = message_class(api, "response")
    first.append(lambda kind=kind, data=filled(kind, kind.max_version): decode_message(kind, kind.max_version, data))

barrier = threading.Barrier(THREADS)
def run():
    for decode in first:
        barrier.wait()
        decode()

sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=run) for _ in range(THREADS)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done", len(first) > 20)
"""


def test_the_first_messages_of_a_process_may_come_in_several_threads_at_once():
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    started = [
        subprocess.Popen([sys.executable, "-c", FIRST], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(PROCESSES)
    ]
    ended = [(process.communicate(timeout=slow_s(60))[0], process.returncode) for process in started]
    assert ended == [("done True\n", 0)] * PROCESSES, "-11 is SIGSEGV"
