"""Quotas of clients: bytes per second that they may write and read.

Theory of operation. Each broker measures the bytes of each client id over eleven windows of a second. What
goes beyond the quota is answered with the time after which the rate is within it again (`throttle_time_ms`),
and the broker does not look at the connection's next request for so long (KIP-219): a client that ignores the
number is slowed down all the same.

- Writing counts before it is done, and is done: a throttled Produce is not refused.
- A Fetch beyond the quota brings no records and does not count; the records are there for the next one. None
  brings more than ten seconds of the quota, or a single response could exceed it for minutes.
- A client id without a quota of its own has the default one, a client without an id counts as the empty id.

The rate is over the time since the oldest window, at least ten seconds: a burst right after the start counts
as if it had taken so long, as in Kafka.

Source: `ClientQuotaManager`, `QuotaUtils`, `Rate`, `SampledStat`; KIP-13, KIP-219.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct

WINDOWS = 11
"""Kafka's `quota.window.num`."""
_WINDOW_S = 1.0


class ClientQuota(Struct, frozen=True):
    """Bytes per second and broker; None for no bound. Names are Kafka's."""

    producer_byte_rate: float | None = None
    consumer_byte_rate: float | None = None


class _Rate:
    """Bytes per second over the last windows."""

    def __init__(self) -> None:
        self._windows: deque[list[float]] = deque()

    def add(self, size: float, now: float) -> None:
        if not self._windows or now - self._windows[-1][0] >= _WINDOW_S:
            self._windows.append([now, 0.0])
            if len(self._windows) > WINDOWS:
                self._windows.popleft()
        self._windows[-1][1] += size

    def throttle_ms(self, bound: float, now: float) -> int:
        """Milliseconds until the rate is within a bound, 0 where it is."""
        while self._windows and now - self._windows[0][0] >= WINDOWS * _WINDOW_S:
            self._windows.popleft()
        if not self._windows:
            return 0
        elapsed = now - self._windows[0][0]
        missing = max(0, WINDOWS - 1 - int(elapsed / _WINDOW_S))
        measured_s = elapsed + missing * _WINDOW_S
        rate = sum(size for _, size in self._windows) / measured_s
        return round((rate - bound) / bound * measured_s * 1_000) if rate > bound else 0


class ClientQuotas:
    """The quotas of all clients, and their rates on each broker."""

    def __init__(self) -> None:
        self._quotas: dict[str | None, ClientQuota] = {}
        self._rates: dict[tuple[str, int, str], _Rate] = {}

    def set(self, client_id: str | None, quota: ClientQuota) -> None:
        """Gives a client id a quota; None: all that have none of their own."""
        self._quotas[client_id] = quota

    def _of(self, client_id: str | None) -> ClientQuota:
        return self._quotas.get(client_id or "", self._quotas.get(None, ClientQuota()))

    def written(self, node_id: int, client_id: str | None, size: int, now: float) -> int:
        """Notes bytes of a Produce; returns for how many milliseconds it is throttled."""
        bound = self._of(client_id).producer_byte_rate
        return 0 if bound is None else self._throttled("producer", node_id, client_id, size, bound, now)

    def read(self, node_id: int, client_id: str | None, size: int, now: float) -> int:
        """Notes bytes of a Fetch; returns for how many milliseconds it is throttled: then they are not sent, and do not count."""
        bound = self._of(client_id).consumer_byte_rate
        if bound is None:
            return 0
        throttled = self._throttled("consumer", node_id, client_id, size, bound, now)
        if throttled:
            self._rates["consumer", node_id, client_id or ""].add(-size, now)
        return throttled

    def _throttled(
        self, kind: str, node_id: int, client_id: str | None, size: int, bound: float, now: float
    ) -> int:
        """Adds bytes to a client's rate on a broker, and returns for how long it is beyond its quota."""
        rate = self._rates.setdefault((kind, node_id, client_id or ""), _Rate())
        rate.add(size, now)
        return rate.throttle_ms(bound, now)

    def most_read(self, client_id: str | None, limit: int) -> int:
        """Bytes that a Fetch may bring: its own limit, or ten seconds of the quota."""
        bound = self._of(client_id).consumer_byte_rate
        return limit if bound is None else min(limit, int(bound * (WINDOWS - 1) * _WINDOW_S))
