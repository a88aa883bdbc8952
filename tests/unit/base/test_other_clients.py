"""Programs written for another client are told what to write here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kafka_actors as ka
from kafka_actors.errors import ConfigError

DOTTED = {"bootstrap.servers": "b:9092", "client.id": "scorer"}


@pytest.mark.parametrize(
    "kind", [ka.Consumer, ka.AsyncConsumer, ka.Producer, ka.AsyncProducer, ka.Admin, ka.AsyncAdmin]
)
def test_a_dict_as_the_first_argument_is_options(kind: Any) -> None:
    assert "b:9092" in repr(kind(DOTTED))
    with pytest.raises(ConfigError, match=r"bootstrap_server: .*did you mean 'bootstrap_servers'"):
        kind({"bootstrap.server": "b:9092"})


def test_options_go_in_once() -> None:
    with pytest.raises(ConfigError, match="config: is given twice: as the first argument and by name"):
        ka.Consumer(DOTTED, config={"group.id": "g"})
    with pytest.raises(ConfigError, match="client_id: is given twice"):
        ka.Consumer(DOTTED, client_id="another")
    assert "group='g'" in repr(ka.Consumer(DOTTED, group_id="g"))


@pytest.mark.parametrize(
    ("client", "names"),
    [
        (ka.Consumer(DOTTED), "poll consume getmany getone store_offsets get_watermark_offsets unassign"),
        (
            ka.AsyncConsumer(DOTTED),
            "poll consume getmany getone store_offsets get_watermark_offsets start stop",
        ),
        (ka.Producer(DOTTED), "produce send_and_wait poll list_topics"),
        (ka.AsyncProducer(DOTTED), "produce send_and_wait start stop"),
        (ka.AsyncAdmin(DOTTED), "list_consumer_groups describe_groups alter_configs"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_a_method_of_another_client_is_an_error_that_names_ours(client: Any, names: str) -> None:
    for name in names.split():
        assert not hasattr(client, name)
        with pytest.raises(AttributeError, match=rf"^{type(client).__name__} has no {name}\(\): .*\w\(?\)?"):
            getattr(client, name)


def test_the_advice_names_methods_that_are_there() -> None:
    with pytest.raises(AttributeError, match=r"poll_batch\(\) returns an Arrow batch"):
        ka.Consumer(DOTTED).poll(1.0)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"send\(topic, value, key=…\) returns a future"):
        ka.Producer(DOTTED).produce("orders", b"1")  # type: ignore[attr-defined]
    for kind, methods in (
        (ka.Consumer, "poll_batch commit beginning_offsets end_offsets unsubscribe topics close"),
        (ka.Producer, "send flush close"),
        (
            ka.Admin,
            "list_groups describe_consumer_groups delete_consumer_groups incremental_alter_configs list_topics",
        ),
    ):
        assert all(hasattr(kind, method) for method in methods.split())


def test_any_other_name_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="'Consumer' object has no attribute 'poll_bach'"):
        ka.Consumer(DOTTED).poll_bach()  # type: ignore[attr-defined]


def test_a_consumer_is_iterable_and_no_iterator() -> None:
    with pytest.raises(TypeError, match=r"Consumer is no iterator: messages = iter\(consumer\), then next"):
        next(ka.Consumer(DOTTED))  # type: ignore[call-overload]

    async def one() -> None:
        await anext(ka.AsyncConsumer(DOTTED))  # type: ignore[call-overload]

    with pytest.raises(TypeError, match=r"AsyncConsumer is no iterator: messages = aiter\(consumer\)"):
        asyncio.run(one())
