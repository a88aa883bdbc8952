"""`ThreadCallers`: calls of a plain function in as many threads as the job's `concurrency`."""

from __future__ import annotations

import threading

from kafka_actors.base.io_thread import ThreadWakeup

from .concurrent_calls import ConcurrentCalls
from .machines.record_window import ConcurrentCall
from .processing_thread import IDLE_S, noted
from .user_function import CallFailed

__all__ = ["ThreadCallers"]


class ThreadCallers:
    """Admits records in the thread of `run`, and makes calls in `threads` others until `stop`."""

    def __init__(self, calls: ConcurrentCalls, threads: int) -> None:
        self._calls = calls
        self._woken = ThreadWakeup()
        self._ready = threading.Condition()
        self._signals = 0
        """Rises whenever calls could begin, so that no caller waits for what came while it looked."""
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._make_calls, name=f"call-{number}", daemon=True)
            for number in range(threads)
        ]

    def run(self) -> None:
        """Runs until `stop`; raises what ends the job, which `on_failure` is told before. Ends when no call is in hand."""
        try:
            for thread in self._threads:
                thread.start()
            while not self._calls.stopped:
                self._woken.clear()
                if not self._calls.admit_some():
                    self._woken.wait(self._calls.look(IDLE_S))
        except BaseException as error:
            self._failed(error)
        self.wake_callers(len(self._threads))
        for thread in self._threads:
            if thread.ident is not None:  # it was started
                thread.join()
        if self._failure is not None:
            raise self._failure

    def _failed(self, error: BaseException) -> None:
        """Tells of what ends the job at once: calls in hand may take minutes."""
        self._failure = self._failure or error
        self._calls.stop()
        self._calls.on_failure(error)

    def wake(self) -> None:
        """Has the thread look for records. For any thread."""
        self._woken()

    def wake_callers(self, ready: int) -> None:
        """Has callers look for calls. For any thread."""
        with self._ready:
            self._signals += 1
            self._ready.notify(ready)

    def _make_calls(self) -> None:
        try:
            while not self._calls.stopped:
                seen = self._signals
                call = self._calls.take()
                if call is None:
                    self._wait(seen)
                else:
                    self._calls.ended(call, self._made(call))
        except BaseException as error:
            self._failed(error)

    def _wait(self, seen: int) -> None:
        with self._ready:
            while self._signals == seen and not self._calls.stopped:
                self._ready.wait()

    def _made(self, call: ConcurrentCall) -> CallFailed | None:
        with self._calls.span(call) as span:
            try:
                self._call(call)
            except CallFailed as failure:
                return noted(failure, span)
        return None

    def _call(self, call: ConcurrentCall) -> None:
        rows, batch, messages = call.rows, call.chunk.batch, self._calls.messages
        if messages is None:
            self._calls.function.call(call.batch, call.attempts + 1)
        else:
            for message in messages.of(batch, rows):
                if (row := self._calls.next_row(call)) is None:
                    break  # others make the rest
                self._calls.function.call_message(message, batch, row)
