"""Calls of a listener: in order, bounded, and never in each other's way."""

from __future__ import annotations

import asyncio
import time

from fakes.loop import in_loop

from kafka_actors.group.member_driver import ListenerCall, ListenerCalls


def run(test) -> None:
    in_loop(test)()


def queue(errors: list[Exception] | None = None) -> ListenerCalls:
    return ListenerCalls(time.monotonic, (errors if errors is not None else []).append)


def test_calls_run_one_at_a_time_in_order():
    async def test() -> None:
        calls, log = queue(), []

        async def call(name: str) -> None:
            log.append(f"{name} begins")
            await asyncio.sleep(0)
            log.append(f"{name} ends")

        for name in "ab":
            calls.put(
                ListenerCall(
                    lambda name=name: call(name), name, after=lambda name=name: log.append(f"{name} after")
                )
            )
        await calls.drained()
        assert log == ["a begins", "a ends", "a after", "b begins", "b ends", "b after"]

    run(test)


def test_a_call_that_never_returns_is_cancelled_at_its_deadline():
    async def test() -> None:
        calls, log = queue(), []
        calls.put(
            ListenerCall(
                asyncio.Event().wait, "stuck", time.monotonic() + 0.05, after=lambda: log.append("released")
            )
        )
        await calls.drained()
        assert log == ["released"]

    run(test)


def test_a_call_without_a_deadline_makes_room_for_what_waits_behind_it():
    async def test() -> None:
        calls, log = queue(), []

        async def revoke() -> None:
            log.append("revoke")

        calls.put(ListenerCall(asyncio.Event().wait, "stuck", after=lambda: log.append("stuck is over")))
        await asyncio.sleep(0)
        calls.put(ListenerCall(revoke, "revoke", time.monotonic() + 0.05))
        await calls.drained()
        assert log == ["stuck is over", "revoke"]

    run(test)


def test_a_call_that_can_be_made_again_makes_room_at_once():
    async def test() -> None:
        calls, log = queue(), []

        async def revoke() -> None:
            log.append("revoke")

        calls.put(ListenerCall(asyncio.Event().wait, "stuck", after=lambda: log.append("again"), yields=True))
        await asyncio.sleep(0)
        began = time.monotonic()
        calls.put(ListenerCall(revoke, "revoke", began + 3600))
        await calls.drained()
        assert log == ["again", "revoke"]
        assert time.monotonic() - began < 60

    run(test)


def test_exceptions_are_told_and_the_next_call_still_runs():
    async def test() -> None:
        errors: list[Exception] = []
        calls, log = queue(errors), []

        async def bad() -> None:
            raise ValueError("mine")

        async def good() -> None:
            log.append("good")

        calls.put(ListenerCall(bad, "bad"))
        calls.put(ListenerCall(good, "good"))
        await calls.drained()
        assert [str(e) for e in errors] == ["mine"]
        assert log == ["good"]

    run(test)


def test_closing_cancels_what_runs_and_forgets_the_rest():
    async def test() -> None:
        calls, log = queue(), []

        async def stuck() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                log.append("cancelled")
                raise

        calls.put(ListenerCall(stuck, "stuck"))
        calls.put(ListenerCall(stuck, "never"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await calls.close()
        assert log == ["cancelled"]

    run(test)
