"""Base of pipelines: stages, error policy and composition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypeVar

import msgspec

from kafka_actors.base.topics import check_topic
from kafka_actors.errors import ConfigError

from .source import ReadKafka, producer_options
from .stages import OnError, Stage

S = TypeVar("S", bound=Stage)

_POLICIES = ("fail", "skip", "dead_letter")


class Definition(msgspec.Struct, frozen=True, kw_only=True, eq=False, weakref=True):
    """Base of `Pipeline`: an immutable value, whose methods return new ones."""

    source: ReadKafka | None = None
    stages: tuple[Stage, ...] = ()
    policy: OnError = "fail"
    retries: int = 3
    dead_letter_topic: str | None = None
    dead_letter_options: dict[str, Any] = {}

    # ------------------------------------------------------------ errors

    def on_error(self, policy: OnError, *, retries: int | None = None) -> Self:
        """Sets what happens to records that fail in stages without `on_error`: "fail", "skip" or "dead_letter". `retries`: how
        often a user's function is called again before."""
        _check_policy("on_error", policy)
        if retries is not None and (isinstance(retries, bool) or not isinstance(retries, int) or retries < 0):
            raise ConfigError("retries", f"is {retries!r}: must be a whole number of 0 or more")
        return msgspec.structs.replace(
            self, policy=policy, retries=self.retries if retries is None else retries
        )

    def dead_letters(self, topic: str, *, config: Mapping[str, Any] | None = None, **options: Any) -> Self:
        """Sends failed records to a topic under "dead_letter": with their own key, value and headers, and headers
        `kafka_actors.error.…` that say topic, partition, offset, timestamp, stage and reason. Delivery is at least once;
        the first three identify the record. It can't be a topic that the pipeline reads."""
        given = producer_options("dead_letters", config, options)
        check_topic(topic, "dead_letters")
        return msgspec.structs.replace(self, dead_letter_topic=topic, dead_letter_options=given)

    def policy_of(self, stage: Stage) -> OnError:
        return stage.on_error or self.policy

    # ------------------------------------------------------------ composing

    def _with(self, kind: type[S], name: str, on_error: OnError | None, **fields: Any) -> Self:
        if on_error is not None:
            _check_policy(name, on_error)
        return self._append(kind(name=name, on_error=on_error, **fields))

    def _append(self, *stages: Stage) -> Self:
        """A copy with more stages, which get distinct names."""
        joined = list(self.stages)
        for stage in stages:
            taken, name, number = {one.name for one in joined}, stage.name, 1
            while name in taken:
                number += 1
                name = f"{stage.name} #{number}"
            joined.append(stage if number == 1 else msgspec.structs.replace(stage, name=name))
        return msgspec.structs.replace(self, stages=tuple(joined))

    def then(self, other: Definition) -> Self:
        """Appends the stages of another pipeline, which has no source. The other's error policy is taken only where this
        pipeline has none."""
        if not isinstance(other, Definition):
            raise ConfigError("then", f"is given {other!r}: accepts a Pipeline")
        if other.source is not None:
            raise ConfigError("then", f"{other!r} has a source of its own: only the first one reads")
        joined = self._append(*other.stages)
        if self.dead_letter_topic is None and other.dead_letter_topic is not None:
            joined = msgspec.structs.replace(
                joined,
                dead_letter_topic=other.dead_letter_topic,
                dead_letter_options=other.dead_letter_options,
            )
        if (self.policy, self.retries) == ("fail", 3):
            joined = msgspec.structs.replace(joined, policy=other.policy, retries=other.retries)
        return joined

    def __or__(self, other: Definition) -> Self:
        return self.then(other)

    @property
    def title(self) -> str:
        """Source and sink: `orders → scored`."""
        begin = self.source.what if self.source is not None else "…"
        last = self.stages[-1] if self.stages and self.stages[-1].is_sink else None
        end = getattr(last, "topic", None) or getattr(last, "path", None) or (last.name if last else "…")
        return f"{begin} → {end}"

    def __repr__(self) -> str:
        begin = [] if self.source is None else [self.source.what]
        return f"<Pipeline {' → '.join([*begin, *(stage.name for stage in self.stages)]) or 'of nothing'}>"


def _check_policy(name: str, policy: Any) -> None:
    if policy not in _POLICIES:
        accepted = ", ".join(repr(p) for p in _POLICIES)
        raise ConfigError(name, f"on_error is {policy!r}: accepts {accepted}")
