"""A user's function: a child that it forks ends where it leaves the call; a flush that fails says whose it was."""

import asyncio
import os
import sys

import pyarrow as pa
import pytest

from kafka_actors.errors import SinkError
from kafka_actors.job.worker.user_function import FunctionSpec, UserFunction

BATCH = pa.record_batch({"topic": ["t"], "partition": pa.array([0], pa.int32()), "offset": pa.array([7])})
CAME_BACK = 77
"""Exit code of a child that goes on behind the call."""


def returns():
    pass


def exits():
    sys.exit(3)


def raises():
    raise ValueError("no good")


def forking(ends):
    """A function whose child does `ends`, and the processes that it has forked."""
    children = []

    def forks(batch):
        if (child := os.fork()) == 0:
            ends()
        else:
            children.append(child)

    return forks, children


def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(("ends", "code", "says"), [(returns, 0, True), (exits, 3, False), (raises, 1, True)])
@pytest.mark.parametrize("kind", ["function", "async function", "constructor", "flush"])
def test_a_forked_child_that_leaves_the_call_ends_and_its_parent_goes_on(kind, ends, code, says, capfd):
    forks, children = forking(ends)
    own = os.getpid()

    class Made:
        def __init__(self):
            if kind == "constructor":
                forks(None)

        def __call__(self, batch):
            if kind == "function":
                forks(batch)

        def flush(self):
            if kind == "flush":
                forks(None)

    async def awaits(batch):
        forks(batch)

    made = UserFunction(FunctionSpec(awaits if kind == "async function" else Made, "batch", 0, "fail"))
    try:
        made.make()
        if kind == "async function":
            asyncio.run(made.call_async(BATCH))
        else:
            made.call(BATCH)
        made.flush()
        made.close()
    finally:
        if os.getpid() != own:
            os._exit(CAME_BACK)
    (child,) = children
    assert ended(child) == code
    said = capfd.readouterr().err
    assert (f"process forked process {child}, which has left the call" in said) == says
    assert ("ValueError: no good" in said) == (ends is raises)


@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ValueError("no room"), r"Stores\.flush: ValueError: no room"),
        (SystemExit(3), r"Stores\.flush: (RuntimeError: )?SystemExit: 3"),
        (SinkError("orders", "no room"), "orders: no room"),
    ],
    ids=["error", "exit", "named already"],
)
def test_the_flush_of_a_class_that_fails_is_a_sinks_error_which_names_it(kind, error, says):
    def flush(self):
        raise error

    async def flush_async(self):
        raise error

    methods = {"__call__": lambda self, batch: None, "flush": flush if kind == "plain" else flush_async}
    made = UserFunction(FunctionSpec(type("Stores", (), methods), "batch", 0, "fail"))
    made.make()
    for _ in range(2):  # nobody knows what the first one has lost
        with pytest.raises(SinkError, match=f"^{says}; the offsets of its records are not committed$"):
            made.flush()
