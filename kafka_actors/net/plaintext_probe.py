"""Whether a port that hung up on a TLS handshake speaks Kafka without TLS.

A plaintext listener takes the first bytes of TLS for an impossible length and closes the connection: the very thing
that a broker does which goes down. One question in plaintext tells them apart, so that a wrong `security_protocol`
is named at once and a restart is waited for.
"""

from __future__ import annotations

import asyncio

from kafka_actors.config import ClientConfig
from kafka_actors.errors import KafkaActorsError

from .connect import SocketOptions, connect
from .handshake import handshake
from .machines.framing import MAX_HANDSHAKE_BYTES, check_length
from .machines.releases import limit_of

PATIENCE_S = 2.0


async def answers_in_plaintext(host: str, port: int, config: ClientConfig, within: float) -> bool:
    """Whether a Kafka broker answers there without TLS, within that many seconds (two at most).

    What is asked is which versions it speaks; nothing secret goes over the wire.
    """
    steps = handshake(config.client_id, limit_of(config.api_version))
    try:
        async with asyncio.timeout(min(within, PATIENCE_S)):
            sock = await connect(host, port, SocketOptions.of(config), min(within, PATIENCE_S))
            reader, writer = await asyncio.open_connection(sock=sock)
            try:
                question = next(steps)
                while True:
                    writer.write(question)
                    size = int.from_bytes(await reader.readexactly(4), "big", signed=True)
                    question = steps.send(await reader.readexactly(check_length(size, MAX_HANDSHAKE_BYTES)))
            finally:
                writer.close()
    except StopIteration:  # an answer was understood
        return True
    except (OSError, TimeoutError, EOFError, KafkaActorsError):
        return False
