"""Base of pipelines: stages, error policy and composition; and the checks of the arguments of `Pipeline`'s methods, which raise
a `ConfigError` with the stage's name at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar, get_args

import msgspec
import pyarrow.compute as pc

from kafka_actors.base.callables import async_method, is_async, is_async_generator, is_generator, misfit
from kafka_actors.base.topics import check_topic
from kafka_actors.errors import ConfigError, kind_of

from .engines import check
from .expressions import readable
from .rows import KAFKA
from .schema_stages import SchemaStage
from .source import ReadKafka, changed_source, producer_options
from .stages import FlatMap, Function, MapMessages, OnError, Ordering, Stage, WriteKafka


def checked_function(
    stage: str,
    target: Any,
    arguments: Any,
    *,
    method: str = "__call__",
    awaited: bool = False,
    returns: bool = True,
) -> dict[str, Any]:
    """Checks a user's function or class, whose `method` is called with one argument, and returns the constructor's arguments.
    `awaited`: whether it may be async; `returns`: whether what it returns is used. Raises `ConfigError`."""
    of_class = inspect.isclass(target)
    if arguments is not None and not isinstance(arguments, Mapping):
        raise ConfigError(stage, f"fn_constructor_kwargs is {arguments!r}: accepts a dict")
    if arguments and not of_class:
        raise ConfigError(stage, "fn_constructor_kwargs are for a class, and this is a function")
    if not callable(target) or (of_class and not callable(getattr(target, method, None))):
        what = f"the class {target.__name__}, which has no {method}" if of_class else repr(target)
        raise ConfigError(
            stage, f"is given {what}: accepts a function, or a class with {method}(self, batch)"
        )
    if of_class and method == "__call__" and not any("__call__" in vars(base) for base in target.__mro__):
        raise ConfigError(stage, f"is given the class {target.__name__}, which has no __call__(self, batch)")
    call = getattr(target, method) if of_class else target
    if is_generator(call) and not returns:
        raise ConfigError(stage, f"is a generator: make it a plain {'method' if of_class else 'function'}")
    if is_async_generator(call):
        raise ConfigError(stage, "is an async generator: return the batches, or a list of them")
    if is_async(call) and not awaited:
        raise ConfigError(
            stage,
            "is async: only map_batches and map_messages await their function; make it a plain function",
        )
    if of_class and not is_async(call) and (other := async_method(target, "flush", "close")) is not None:
        raise ConfigError(
            stage, f"is given the class {target.__name__}, whose {other} is async: make it a plain method"
        )
    kwargs = dict(arguments or {})
    if of_class:
        _check_call(stage, target, (), kwargs)
    _check_call(stage, call, (None, None) if of_class else (None,), {})
    return kwargs


def _check_call(stage: str, target: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    if (wrong := misfit(target, positional, named)) is not None:
        raise ConfigError(stage, f"takes {wrong.signature}: {wrong.reason}")


def checked_items(stage: str, items: Mapping[str, Any], *, names: bool) -> tuple[tuple[str, Any], ...]:
    """Checks expressions by name; with `names` an item may also be the name of a column. Raises `ConfigError`."""
    for name, item in items.items():
        if not isinstance(name, str) or not name or name == KAFKA:
            raise ConfigError(stage, f"{name!r} can't be a column's name")
        if isinstance(item, pc.Expression) or (names and isinstance(item, str)):
            continue
        accepts = "a column's name or an expression" if names else "an expression"
        raise ConfigError(
            stage,
            f"{name} is {item!r}, {kind_of(item)}: accepts {accepts}; a constant is pc.scalar({item!r})",
        )
    if not items:
        raise ConfigError(stage, "names no column")
    return tuple(items.items())


_LONGEST = 40


def named(name: Any, otherwise: str) -> str:
    """The user's name for a stage, or `otherwise` on one line and shortened. Raises `ConfigError`."""
    if name is None:
        line = " ".join(otherwise.split())
        return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 2]}…)"
    if not isinstance(name, str) or not name.strip():
        raise ConfigError("name", f"is {name!r}: accepts a name that is not empty")
    return name


def called(target: Any) -> str:
    """The name of a function or class; for an object that of its class."""
    name = getattr(target, "__name__", None)
    return type(target).__name__ if name is None else str(name).replace("<lambda>", "lambda")


def bare(expression: Any) -> str:
    """The text of an expression without parentheses around all of it."""
    text = readable(str(expression))
    return text[1:-1] if text.startswith("(") and text.endswith(")") and _closes_last(text) else text


def _closes_last(text: str) -> bool:
    depth = 0
    for at, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return at == len(text) - 1
    return False


def check_delivery(
    stage: str, topic: str | None, delivery: Any, marker_topic: Any, options: Mapping[str, Any]
) -> None:
    """Checks the delivery of a Kafka sink. Raises `ConfigError`, naming the stage."""
    if delivery not in ("at_least_once", "exactly_once"):
        raise ConfigError(stage, f"delivery is {delivery!r}: accepts 'at_least_once' or 'exactly_once'")
    if delivery == "at_least_once":
        if marker_topic is not None:
            raise ConfigError(stage, "marker_topic is for delivery='exactly_once'")
        return
    if topic is None and marker_topic is None:
        raise ConfigError(
            stage,
            "delivery is 'exactly_once', and rows name their topics: say with marker_topic= under which topic the markers are committed",
        )
    if marker_topic is not None:
        check_topic(marker_topic, stage)
    for name, needed in (("acks", "all"), ("enable_idempotence", True)):
        if options.get(name, needed) != needed:
            raise ConfigError(
                stage, f"{name} is {options[name]!r}: must be {needed!r} with delivery='exactly_once'"
            )


def check_call_options(
    stage: str, *, num_gpus: Any = 0, ordering: Any = None, concurrency: Any = None, kafka: bool = False
) -> None:
    """Checks the options of a stage that calls the user's code. Raises `ConfigError`, naming the stage."""
    if isinstance(num_gpus, bool) or not isinstance(num_gpus, (int, float)) or num_gpus < 0:
        raise ConfigError(stage, f"num_gpus is {num_gpus!r}: must be a number of 0 or more")
    if ordering is not None and ordering not in get_args(Ordering):
        raise ConfigError(stage, f"ordering is {ordering!r}: accepts 'partition', 'key' or 'unordered'")
    if concurrency is not None and (
        isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1
    ):
        raise ConfigError(stage, f"concurrency is {concurrency!r}: must be a whole number of 1 or more")


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
        checked = producer_options("dead_letters", config, options)
        check_topic(topic, "dead_letters")
        return msgspec.structs.replace(self, dead_letter_topic=topic, dead_letter_options=checked)

    def policy_of(self, stage: Stage) -> OnError:
        return stage.on_error or self.policy

    @property
    def is_async(self) -> bool:
        """Whether a stage has an async function."""
        return any(isinstance(stage, Function) and stage.is_async for stage in self.stages)

    @property
    def by_record(self) -> bool:
        """Whether a stage calls its function with single records or rows."""
        return any(isinstance(stage, (MapMessages, FlatMap)) for stage in self.stages)

    # ------------------------------------------------------------ composing

    def reading(
        self,
        options: Mapping[str, Any],
        *,
        topics: Iterable[str] | None = None,
        pattern: str | None = None,
    ) -> Self:
        """A copy whose source has other options, underscored, and other topics where some are given; sinks and dead letters
        follow it to its cluster, and the schemas of other topics are looked up when it is made ready. Raises `ConfigError`."""
        if self.source is None:
            raise ConfigError("pipeline", "has no source: begin it with Pipeline.read_kafka(…)")
        made = msgspec.structs.replace(self, source=changed_source(self.source, options, topics, pattern))
        if topics is None and pattern is None:
            return made
        stages = tuple(one.unready() if isinstance(one, SchemaStage) else one for one in self.stages)
        return msgspec.structs.replace(made, stages=stages)

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

    def ready(self) -> Self:
        """A copy in which each decoder and each sink by a registry's schema has that schema, for which registries are asked now; an engine
        makes it when the pipeline is bound to it. Raises `ConfigError`, and `SchemaRegistryError` where a registry can't be asked."""
        topics = None if self.source is None else self.source.topics
        stages = [stage.ready(topics) if isinstance(stage, SchemaStage) else stage for stage in self.stages]
        made = msgspec.structs.replace(self, stages=tuple(stages))
        if not any(isinstance(stage, WriteKafka) and stage.writer is not None for stage in stages):
            return made
        columns = check(made, None).columns  # before anything is registered
        stages = [stage.ready(columns) if isinstance(stage, WriteKafka) else stage for stage in stages]
        return msgspec.structs.replace(self, stages=tuple(stages))

    def at_least_once(self) -> Self:
        """A copy whose Kafka sinks deliver at least once."""
        stages = tuple(
            msgspec.structs.replace(stage, delivery="at_least_once", marker_topic=None)
            if isinstance(stage, WriteKafka)
            else stage
            for stage in self.stages
        )
        return msgspec.structs.replace(self, stages=stages)

    @property
    def title(self) -> str:
        """Source and sinks: `orders → scored, /data/scored`."""
        begin = self.source.what if self.source is not None else "…"
        sinks = [stage for stage in self.stages if stage.is_sink]
        ends = [getattr(s, "topic", None) or getattr(s, "path", None) or s.name for s in sinks]
        return f"{begin} → {', '.join(ends) or '…'}"

    def __repr__(self) -> str:
        text, between = "" if self.source is None else self.source.what, " → "
        for stage in self.stages:
            text += f"{between if text else ''}{stage.name}"
            between = ", " if stage.is_sink else " → "
        return f"<Pipeline {text or 'of nothing'}>"


def _check_policy(name: str, policy: Any) -> None:
    if policy not in _POLICIES:
        accepted = ", ".join(repr(p) for p in _POLICIES)
        raise ConfigError(name, f"on_error is {policy!r}: accepts {accepted}")
