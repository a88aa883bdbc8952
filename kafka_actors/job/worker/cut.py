"""The place between two calls of the user's function, where the results of a call and the offset behind its records meet."""

from __future__ import annotations

import enum
from collections.abc import Generator

import msgspec

from kafka_actors.job.messages import GrantEpoch
from kafka_actors.types import TopicPartition

from .user_function import CallFailed

__all__ = ["LOST", "Cut", "Lost", "WaitFor"]


class WaitFor(msgspec.Struct, frozen=True):
    """Resume the generator after this time."""

    seconds: float


class Lost(enum.Enum):
    """The results of a call count no more: its partition was taken away meanwhile."""

    LOST = "lost"


LOST = Lost.LOST


class Cut:
    """The place between calls where results and offsets meet. Here, for at least once, each call writes its results by itself, and
    nothing has to wait; with transactions it is a `ProducerSessions`."""

    def enter(self) -> Generator[WaitFor, None, None]:
        yield from ()

    def leave(self) -> None: ...

    def put_out(
        self,
        partition: TopicPartition,
        epoch: GrantEpoch,
        resets: int,
        failure: CallFailed | None,
        *,
        partly: bool = True,
    ) -> CallFailed | Lost | None:
        return failure

    def may_write(self, partition: TopicPartition, epoch: GrantEpoch, resets: int) -> bool:
        return True

    def spoiled(self, error: BaseException) -> None: ...
