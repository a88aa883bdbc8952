"""`RunningJob`: waiting, and signals meanwhile."""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace

from kafka_actors.errors import KafkaTimeoutError
from kafka_actors.ray.control import ActorControl, LocalControl
from kafka_actors.ray.running_job import RunningJob


def test_who_waits_in_another_thread_too_leaves_the_signals_to_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGTERM)
    raised: list[BaseException] = []

    def elsewhere() -> None:
        try:
            running.wait(timeout=0)
        except BaseException as error:
            raised.append(error)

    class Ending:
        """A job that goes on until somebody has waited for it in another thread."""

        def wait(self, timeout: float | None) -> bool:
            if threading.current_thread() is not threading.main_thread():
                return False
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            return True

    running = RunningJob(Ending())  # type: ignore[arg-type]
    running.wait()
    assert signal.getsignal(signal.SIGTERM) is before
    assert [type(error) for error in raised] == [KafkaTimeoutError]


def test_a_running_job_is_shown_in_one_line_without_asking_it() -> None:
    control = LocalControl.__new__(LocalControl)
    control._supervisor = SimpleNamespace(  # type: ignore[assignment]
        plan=SimpleNamespace(config=SimpleNamespace(group_id="scorer")),
        report=SimpleNamespace(state="running"),
    )
    assert repr(RunningJob(control)) == "<RunningJob of group 'scorer', running>"
    detached = ActorControl(None, "nightly")  # type: ignore[arg-type]
    assert repr(RunningJob(detached)) == "<RunningJob 'nightly', detached>"
