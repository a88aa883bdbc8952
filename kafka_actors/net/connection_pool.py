"""The connections of a client: at most one per node, opened when needed, with a pause after each failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kafka_actors.base.backoff import RetryTimer, exponential_backoff
from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.config import ClientConfig
from kafka_actors.errors import KafkaActorsError, NodeNotReadyError

from .connection import Connection
from .machines.api_versions import ApiVersionTable
from .machines.node_choice import NodeState

Locate = Callable[[int], BrokerMetadata | None]


@dataclass(slots=True)
class _Node:
    """One node and its connection. `error` is why the last attempt failed or the last connection ended."""

    broker: BrokerMetadata
    backoff: RetryTimer
    connection: Connection | None = None
    connecting: asyncio.Task[Connection] | None = None
    connected_at: float = 0.0
    error: Exception | None = field(default=None)

    def live(self) -> Connection | None:
        return self.connection if self.connection is not None and not self.connection.closed else None


class ConnectionPool:
    """Opens the connections to nodes, closes them, and counts the pauses between attempts.

    `locate` returns a node's address, `on_trouble` is called with the node's id after each failed or lost connection.
    `clock` counts seconds, monotonic; `rand` gives 0..1 for jitter.
    """

    def __init__(
        self,
        config: ClientConfig,
        locate: Locate,
        on_trouble: Callable[[int], object],
        clock: Callable[[], float],
        rand: Callable[[], float],
    ) -> None:
        self._config = config
        self._locate = locate
        self._on_trouble = on_trouble
        self._clock = clock
        self._rand = rand
        self._nodes: dict[int, _Node] = {}
        self._closed = False
        self.versions: ApiVersionTable | None = None
        """The API versions of the broker that was connected to last; None before the first."""
        self.newest_features: ApiVersionTable | None = None
        """The API versions of the broker that knew most of the cluster's features when it was connected to."""

    def live(self, node_id: int) -> Connection | None:
        """The node's connection, None if there is none now."""
        node = self._nodes.get(node_id)
        return None if node is None else node.live()

    def node_ids(self) -> list[int]:
        """The ids of nodes that were used and are still known."""
        return list(self._nodes)

    def state(self, node_id: int) -> NodeState:
        """The state of a node for the choice among nodes."""
        node = self._nodes.get(node_id)
        if node is None:
            return NodeState(node_id, connected=False, connecting=False, in_flight=0, delay=0.0)
        live = node.live()
        delay = 0.0 if live is not None else node.backoff.remaining(self._clock())
        # With a delay left the attempt waits for its backoff, and connects only then.
        return NodeState(
            node_id,
            connected=live is not None,
            connecting=node.connecting is not None and delay <= 0,
            in_flight=0 if live is None else live.in_flight,
            delay=delay,
        )

    def error(self, node_id: int) -> Exception | None:
        """The reason why the node's last attempt failed, or its last connection ended; None if neither has happened."""
        node = self._nodes.get(node_id)
        return None if node is None else node.error

    def errors(self, node_ids: Iterable[int]) -> str:
        """The last errors of those nodes that have none of their connections left, empty without any."""
        found = ((n, self.error(n)) for n in node_ids if self.live(n) is None)
        return "; ".join(f"broker {n}: {error}" for n, error in found if error is not None)

    async def connection(self, node_id: int, deadline: float) -> Connection:
        """The node's connection, opened if need be, after the pause that an earlier failure demands.

        Callers share an attempt. Raises `NodeNotReadyError` if the node isn't known or `deadline` (of the
        clock) passed, or the pool was closed; `ConnectionFailedError` and what else `Connection.open` raises.
        """
        node = self._node(node_id)
        if node is None:
            raise NodeNotReadyError(f"broker {node_id} is not known")
        if (live := node.live()) is not None:
            return live
        if node.connecting is None:
            node.connecting = self._begin(node)
        done, _ = await asyncio.wait({node.connecting}, timeout=max(deadline - self._clock(), 0.0))
        if not done:
            because = f": {node.error}" if node.error is not None else ""
            raise NodeNotReadyError(f"no connection to broker {node_id} in time{because}")
        task = done.pop()
        if task.cancelled():
            raise NodeNotReadyError(f"the client stopped connecting to broker {node_id}")
        return task.result()

    def begin(self, node_id: int) -> bool:
        """Connects to the node in the background, when its backoff is over. Returns whether that began just now. Raises
        `NodeNotReadyError` once the pool was closed."""
        node = self._node(node_id)
        if node is None or node.live() is not None or node.connecting is not None:
            return False
        node.connecting = self._begin(node)
        return True

    def _begin(self, node: _Node) -> asyncio.Task[Connection]:
        if self._closed:
            raise NodeNotReadyError("the client was closed")
        task = asyncio.create_task(self._connect(node))
        task.add_done_callback(_retrieved)
        return task

    async def _connect(self, node: _Node) -> Connection:
        broker = node.broker
        try:
            await asyncio.sleep(node.backoff.remaining(self._clock()))
            first = self._config.socket_connection_setup_timeout_ms
            longest = max(first, self._config.socket_connection_setup_timeout_max_ms)
            limit = exponential_backoff(node.backoff.failures + 1, first, longest, self._rand)
            # From the next address on after each failure, as Java does: one may accept connections and never answer.
            connection = await Connection.open(
                broker.host,
                broker.port,
                self._config,
                timeout_ms=limit,
                first_address=node.backoff.failures,
                clock=self._clock,
            )
        except KafkaActorsError as error:
            node.error = error
            node.backoff.failed(self._clock())
            self._on_trouble(broker.node_id)
            raise
        finally:
            node.connecting = None
        node.connection = connection
        node.connected_at = self._clock()
        self.versions = connection.versions
        known = self.newest_features
        if known is None or connection.versions.features_epoch >= known.features_epoch:
            self.newest_features = connection.versions
        connection.add_close_callback(lambda closed: self._on_closed(node, closed))
        return connection

    def _on_closed(self, node: _Node, connection: Connection) -> None:
        if connection.error is None:  # closed by this side: it was idle, or `close` was called
            return
        now = self._clock()
        node.error = connection.error
        # A broker that drops each connection at once must not be connected to in a tight loop.
        if now - node.connected_at > self._config.reconnect_backoff_max_ms / 1000:
            node.backoff.succeeded()
        node.backoff.failed(now)
        if self._nodes.get(node.broker.node_id) is node:
            self._on_trouble(node.broker.node_id)

    def _node(self, node_id: int) -> _Node | None:
        """The node at its present address: after a move it has new state, and its old connection is closed."""
        broker = self._locate(node_id)
        node = self._nodes.get(node_id)
        if node is not None and (
            broker is None or (node.broker.host, node.broker.port) != (broker.host, broker.port)
        ):
            self._drop(node_id)
            node = None
        if node is None and broker is not None:
            pause = self._config.reconnect_backoff_ms / 1000, self._config.reconnect_backoff_max_ms / 1000
            node = self._nodes[node_id] = _Node(broker, RetryTimer(*pause, self._rand))
        return node

    def follow(self) -> None:
        """Closes the connections of nodes that moved or are gone."""
        for node_id in list(self._nodes):
            self._node(node_id)

    def _drop(self, node_id: int) -> asyncio.Task[Connection] | None:
        node = self._nodes.pop(node_id)
        if node.connecting is not None:
            node.connecting.cancel()
        if node.connection is not None:
            node.connection.close()
        return node.connecting

    async def close(self, node_ids: Iterable[int] | None = None) -> None:
        """Closes these nodes' connections, and waits until nothing of them runs. By default all, and the pool: none is opened again."""
        self._closed = self._closed or node_ids is None
        chosen = list(self._nodes) if node_ids is None else [n for n in node_ids if n in self._nodes]
        ending = [task for task in map(self._drop, chosen) if task is not None]
        if ending:
            await asyncio.wait(ending)


def _retrieved(task: asyncio.Task[Connection]) -> None:
    """Marks the exception of an attempt as seen: its callers may be gone, and asyncio would warn of it."""
    if not task.cancelled():
        task.exception()
