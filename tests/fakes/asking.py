"""One question over each of the two kinds of connection, and logins for it."""

from __future__ import annotations

import asyncio
from typing import Any

from kafka_actors.config import ClientConfig, build
from kafka_actors.net import Connection, FetchSocket
from kafka_actors.protocol import ApiKey, MetadataRequest, frame
from kafka_actors.testing import KafkaCluster

from .secure import PASSWORD, USER, unsecured_token


class Tokens:
    """A provider whose tokens hold for some seconds each."""

    def __init__(self, seconds: float = 60.0) -> None:
        self.seconds = seconds
        self.asked = 0

    def token(self) -> str:
        self.asked += 1
        return unsecured_token(self.seconds)


def sasl_options(mechanism: str, **other: Any) -> dict[str, Any]:
    """The login of `USER` with a mechanism."""
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": Tokens(), **other}
    login = {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    return {"sasl_mechanism": mechanism, **login, **other}


def config_for(kafka: KafkaCluster, listener: str, **options: Any) -> tuple[tuple[str, int], ClientConfig]:
    """A listener's address, and what a client for it is told."""
    return kafka.address(1, listener), build(ClientConfig, options)


def answer_to(sent: bytes, channel: FetchSocket) -> memoryview:
    """Sends a frame over a blocking socket and receives one response, as a fetcher does."""
    channel.send(sent)
    return channel.receive()


def over_connection(host: str, port: int, config: ClientConfig) -> int:
    """Asks with asyncio how many brokers there are."""

    async def run() -> int:
        connection = await Connection.open(host, port, config)
        try:
            return len((await connection.send(MetadataRequest(topics=[]))).brokers)
        finally:
            connection.close()

    return asyncio.run(run())


def over_socket(host: str, port: int, config: ClientConfig) -> int:
    """Asks over a blocking socket, and says 1 if there is an answer."""
    channel = FetchSocket(host, port, config).open()
    try:
        version = channel.versions.pick(MetadataRequest)
        answer = answer_to(frame(ApiKey.METADATA, version, 7, "me", MetadataRequest(topics=[])), channel)
        assert int.from_bytes(answer[:4], "big") == 7
        return 1
    finally:
        channel.close()
