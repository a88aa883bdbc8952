"""Set-up of actors on its way to their processes, the links that stand-ins of tests have to be like, and messages about connection actors: whole
states that can be compared, and that come out as they went in."""

from __future__ import annotations

import inspect
import logging
import pickle
from typing import Any

import msgspec
import pytest
from fakes.worker import Scene

from kafka_actors.job.actor_setup import (
    ConnectionWanted,
    CoordinatorLink,
    MetadataLink,
    ProcessSetup,
    Topology,
    Wiring,
)
from kafka_actors.job.messages import pack, unpack
from kafka_actors.ray.links import CoordinatorActorLink, MetadataActorLink
from kafka_actors.telemetry.logs import LogOrigin
from kafka_actors.telemetry.sdk import Settings


class Handle:
    """An actor's handle: its runtime pickles it by a name that only the runtime knows, and makes it anew from that."""

    def __init__(self, actor: str) -> None:
        self.actor = actor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.actor == self.actor

    def __hash__(self) -> int:
        return hash(self.actor)

    def __reduce__(self) -> Any:
        return Handle, (self.actor,)


def test_handles_travel_as_their_runtime_sends_them() -> None:
    sent = Wiring(3, Handle("metadata"), 2, Handle("coordinator"), {1: (0, Handle("c-1")), 2: (5, None)})
    found = pickle.loads(pickle.dumps(sent))
    assert found == sent
    assert found.connections[1] == (0, Handle("c-1"))
    assert found.connections[2] == (5, None), "there is no such actor now"


def test_a_handle_cannot_be_packed_as_the_messages_of_jobs_are() -> None:
    with pytest.raises(TypeError, match="Handle"):
        pack(Wiring(1, metadata=Handle("metadata")))


def test_a_worker_begins_with_a_wiring_of_no_actors_that_any_other_is_newer_than() -> None:
    """It takes every wiring that is not older, and the supervisor counts from 1."""
    first = Wiring(0)
    assert (first.metadata, first.coordinator, first.connections) == (None, None, {})
    first.connections[1] = (0, Handle("c-1"))
    assert Wiring(0).connections == {}, "no two workers share one"


def test_the_set_up_of_a_process_arrives_whole_and_shows_no_credentials() -> None:
    telemetry = Settings({"OTEL_EXPORTER_OTLP_HEADERS": "authorization=secret-token"}, page=True)
    sent = ProcessSetup(logging.INFO, LogOrigin("g", "scorer", "worker-0", 3), telemetry)
    found = pickle.loads(pickle.dumps(sent))
    assert found == sent
    assert found.telemetry.variables["OTEL_EXPORTER_OTLP_HEADERS"] == "authorization=secret-token"
    assert "secret-token" not in repr(sent)


def test_a_job_that_is_not_measured_sets_up_no_telemetry() -> None:
    assert ProcessSetup(logging.WARNING, LogOrigin("g")).telemetry is None


def calls_of(link: type) -> dict[str, inspect.Signature]:
    """Public methods with their parameters."""
    return {
        name: inspect.signature(call).replace(return_annotation=None)
        for name, call in inspect.getmembers(link, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("link", "kind"),
    [
        (CoordinatorLink, CoordinatorActorLink),
        (MetadataLink, MetadataActorLink),
        (CoordinatorLink, Scene),
        (MetadataLink, Scene),
    ],
)
def test_links_of_rays_actors_and_of_tests_have_the_calls_of_the_protocol(link: type, kind: type) -> None:
    there = calls_of(kind)
    for name, wanted in calls_of(link).items():
        assert inspect.iscoroutinefunction(getattr(kind, name))
        assert list(there[name].parameters) == list(wanted.parameters), name


WANTED = ConnectionWanted("node-1", 2, "broker-2", 9092)


def test_connection_messages_come_out_as_they_went_in() -> None:
    told = Topology(7, [WANTED, ConnectionWanted("node-2", 0, "broker-0", 9092)])
    assert unpack(pack(told), Topology) == told


def test_a_wish_is_a_value_that_can_be_looked_up() -> None:
    """The supervisor compares what runs with what is wanted, broker 0 included."""
    same = ConnectionWanted("node-1", 2, "broker-2", 9092)
    assert {WANTED: "runs"}[same] == "runs"
    assert ConnectionWanted("node-1", 0, "b", 1) != ConnectionWanted("node-1", 1, "b", 1)
    assert ConnectionWanted("node-1", 2, "moved", 9092) != WANTED


def test_another_message_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        unpack(pack(WANTED), Topology)


def test_nobody_changes_one_that_was_told() -> None:
    with pytest.raises(AttributeError):
        WANTED.host = "elsewhere"  # type: ignore[misc]
