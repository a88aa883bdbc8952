import signal

import click
import pytest

from kafka_actors.cli.command import EXIT_FAILED, EXIT_USAGE, LoadError, describe, exit_code, terminable
from kafka_actors.errors import (
    ConfigError,
    JobFailed,
    NoBrokersAvailable,
    ProcessError,
    RemoteCauseError,
    UnknownTopicOrPartitionError,
    UsageError,
)


def _raised_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def test_a_failed_function_is_named_with_partition_offsets_and_what_it_raised() -> None:
    failed = _raised_from(ProcessError("orders", 3, 100, 199, 4), KeyError("country"))
    assert describe(JobFailed(failed)) == (
        "process failed on orders-3 offsets 100-199 after 4 attempts: KeyError: 'country'"
    )


def test_a_cause_whose_class_stayed_in_the_worker_is_named_by_its_text() -> None:
    failed = _raised_from(ProcessError("orders", 0, 7, 7, 1), RemoteCauseError("orders.BadOrder: no lines"))
    assert (
        describe(failed) == "process failed on orders-0 offset 7 after 1 attempt: orders.BadOrder: no lines"
    )


def test_an_option_is_named_first() -> None:
    assert describe(ConfigError("retries", "is -1: must be >= 0")) == "retries: is -1: must be >= 0"


def test_a_broker_answer_names_topic_and_request() -> None:
    error = UnknownTopicOrPartitionError("does not exist", request="Metadata", topic="ordres")
    assert describe(error) == (
        "UNKNOWN_TOPIC_OR_PARTITION (3) in answer to Metadata for ordres: does not exist"
    )


def test_foreign_errors_come_with_their_type_and_any_text_is_one_line() -> None:
    assert describe(ValueError("first\n  second\n")) == "ValueError: first second"
    assert describe(RuntimeError()) == "RuntimeError"


def test_what_ray_wraps_is_unwrapped() -> None:
    class RayTaskError(Exception):
        cause = OSError("no such model")

    class RayTaskErrorOfOSError(
        RayTaskError, OSError
    ):  # as Ray makes them: the wrapper is also the cause's class
        pass

    assert describe(RayTaskErrorOfOSError("Traceback …\n" * 40)) == "OSError: no such model"


def test_a_cause_is_not_told_twice() -> None:
    cause = OSError("connection refused")
    error = _raised_from(NoBrokersAvailable("localhost:1: connection refused"), cause)
    assert describe(error) == "localhost:1: connection refused"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("workers", "is 0"), EXIT_USAGE),
        (UsageError("there is no file x.py"), EXIT_USAGE),
        (click.BadParameter("x"), EXIT_USAGE),
        (JobFailed(ValueError()), EXIT_FAILED),
        (LoadError("x.py could not be loaded"), EXIT_FAILED),
        (NoBrokersAvailable("x"), EXIT_FAILED),
        (ZeroDivisionError(), EXIT_FAILED),
    ],
)
def test_exit_codes_tell_wrong_usage_from_failure(error: Exception, code: int) -> None:
    assert exit_code(error) == code


def test_sigterm_is_as_ctrl_c_and_afterwards_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def terminated() -> None:
        with terminable():
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        terminated()
    assert signal.getsignal(signal.SIGTERM) is before
