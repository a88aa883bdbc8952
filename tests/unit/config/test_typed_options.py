"""The typed names of options are those that are declared."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest

from kafka_actors.config.security import Secret
from kafka_actors.config.typed_options import ConnectionOptions, ConsumerOptions, JobOptions, ProducerOptions
from kafka_actors.options import ClientConfig, ConsumerConfig, JobConfig, ProducerConfig

WIDER = {
    "acks",
    "api_version",
    "bootstrap_servers",
    "partition_assignment_strategy",
    "socket_options",
    "worker_assignor",
    "worker_capacity",
}
"""Options of which a user may give more kinds than the config holds."""


@pytest.mark.parametrize(
    ("typed", "declared"),
    [
        (ConnectionOptions, ClientConfig),
        (ConsumerOptions, ConsumerConfig),
        (ProducerOptions, ProducerConfig),
        (JobOptions, JobConfig),
    ],
)
def test_editors_know_the_options_that_there_are(typed: Any, declared: type[msgspec.Struct]) -> None:
    config = {field.name: field.type for field in msgspec.structs.fields(declared)}
    known = get_type_hints(typed)
    assert list(known) == list(config)
    assert not typed.__required_keys__
    for name in config.keys() - WIDER:
        assert plain(known[name]) == plain(config[name]), name


def plain(hint: Any) -> frozenset[Any]:
    """The kinds of values, without bounds: `Annotated[int, …] | None` → int, None."""
    if hasattr(hint, "__metadata__"):
        return plain(hint.__origin__)
    if get_origin(hint) is Literal:
        return frozenset(get_args(hint))
    kinds = [plain(arg) for arg in get_args(hint)] or [frozenset({str if hint is Secret else hint})]
    return frozenset().union(*kinds)
