"""What a client knows of its nodes' connections, and which of them to use."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from kafka_actors.base.fork_guard import ForkGuard
from kafka_actors.cluster.metadata import ClusterMetadata
from kafka_actors.config import ClientConfig, build, resolved
from kafka_actors.errors import UsageError

from .connect import check_socket_options
from .connection_pool import ConnectionPool
from .machines.node_choice import least_loaded
from .machines.releases import limit_of
from .security.tls import context_of

_FOREVER_MS = float(0x7FFFFFFF)


class ClientNodes(ForkGuard):
    """The nodes of a client: broker ids; the bootstrap servers have the ids -1, -2, … in their order.

    `cluster` is what is known of the cluster, `config` the options.
    """

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        rand: Callable[[], float] = random.random,
        **options: Any,
    ) -> None:
        super().__init__()
        if config is None:
            config = resolved(build(ClientConfig, options))
        elif options:
            raise UsageError("give KafkaClient a config or options, not both")
        self.config = config
        self._clock = clock
        self.rand = rand
        self.cluster = ClusterMetadata(
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            metadata_max_age_ms=config.metadata_max_age_ms,
            bootstrap_servers=config.bootstrap_servers,
            clock=clock,
            rand=rand,
        )
        # What can't be used fails before anything connects.
        limit_of(config.api_version)
        context_of(config)
        check_socket_options(config)
        self.cluster.add_listener(lambda _: self._pool.follow())
        self._pool = ConnectionPool(config, self.cluster.broker_metadata, self._on_trouble, clock, rand)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def _on_trouble(self, node_id: int) -> None:
        """A lost connection is often the first sign that leaders moved."""
        if node_id >= 0 and not self._closed:
            self.cluster.request_update()

    def _check_usable(self) -> None:
        self._check_process()
        if self._closed:
            raise UsageError("this KafkaClient is closed")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise UsageError("this KafkaClient belongs to another event loop: make one per loop")

    # ------------------------------------------------------------ connecting

    def maybe_connect(self, node_id: int, wakeup: bool = True) -> bool:
        """Has a node connected to in the background, when its backoff is over. Returns whether that began now.

        False where it is connected or connecting, and for a node that isn't known: metadata is asked for then.
        `wakeup` has no meaning where an event loop runs.
        """
        self._check_usable()
        if self.cluster.broker_metadata(node_id) is None:
            self.cluster.request_update()
            return False
        return self._pool.begin(node_id)

    def ready(self, node_id: int, metadata_priority: bool = True) -> bool:
        """Whether a request to the node would be written at once; begins to connect to it if it isn't connected."""
        self.maybe_connect(node_id)
        return self.is_ready(node_id, metadata_priority)

    def is_ready(self, node_id: int, metadata_priority: bool = True) -> bool:
        """Whether a request to the node would be written at once.

        With `metadata_priority` no node is ready while a metadata refresh is due.
        """
        if metadata_priority and self.cluster.ttl() == 0:
            return False
        live = self._pool.live(node_id)
        window = self.config.max_in_flight_requests_per_connection
        return live is not None and live.in_flight < window and live.throttle_delay() == 0

    # ------------------------------------------------------------ reading

    def connected(self, node_id: int) -> bool:
        """Whether there is a connection to the node."""
        return self._pool.live(node_id) is not None

    def is_disconnected(self, node_id: int) -> bool:
        """Whether a connection to the node failed or ended, and none is there or being made."""
        state = self._pool.state(node_id)
        return self._pool.error(node_id) is not None and not state.connected and not state.connecting

    def bootstrap_connected(self) -> bool:
        """Whether there is a connection to a bootstrap server."""
        return any(self.connected(b.node_id) for b in self.cluster.bootstrap_brokers())

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        """How many requests of a node, or of all, wait for their answers."""
        nodes = self._pool.node_ids() if node_id is None else [node_id]
        return sum(self._pool.state(n).in_flight for n in nodes)

    def connection_delay(self, node_id: int) -> float:
        """Milliseconds until a request to the node may be tried: its backoff, 0 while connecting or possible at
        once, and a very large number when connected, as there is nothing to wait for."""
        state = self._pool.state(node_id)
        if state.connected:
            return _FOREVER_MS
        return 0.0 if state.connecting else state.delay * 1000

    def least_loaded_node(self) -> int | None:
        """The node with the fewest requests in flight; None where none may be asked now.

        An idle connection is preferred, then a node to connect to that isn't backing off. Bootstrap servers
        count as long as no broker is known.
        """
        nodes = self.cluster.snapshot().brokers or {b.node_id: b for b in self.cluster.bootstrap_brokers()}
        return least_loaded(map(self._pool.state, nodes), self.rand)
