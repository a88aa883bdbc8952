"""`handshake`, the first exchange on a new connection, and `ApiVersionTable`, the versions that a broker and this client both speak.

Theory of operation. A broker answers ApiVersions with the lowest and highest version of each API (KIP-35). A request is sent in the
highest version that both sides have, within the bounds of its caller and of the option `api_version`. A broker doesn't tell its
release: it is recognised by the highest version of one API that only this release and newer ones have. A broker that doesn't know
the version of ApiVersions itself answers in version 0 with an error, and with its range where it can (KIP-511); then that is tried.
Versions of a newer Kafka than this client knows cost nothing: the client's own highest one is used.

The table is made once for each connection and never changes: a broker that is upgraded closes its
connections. A request that the broker lacks, or for which both sides have no version in common, raises
`UnsupportedVersionError` with both ranges before anything is sent.

The exchange is a generator that yields frames to send and is sent the frames received, so that `Connection` and `FetchSocket` share
it; `security.authentication` has more steps of the same kind.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, TypeVar

from kafka_actors.errors import (
    CorrelationIdError,
    UnrecognizedBrokerVersion,
    UnsupportedVersionError,
    raise_for_code,
)
from kafka_actors.protocol import (
    ApiKey,
    ApiVersionsRequest,
    ApiVersionsResponse,
    EndTxnRequest,
    decode_api_versions,
    decode_header,
    frame,
)
from kafka_actors.protocol.schema import Request

from .releases import NEWEST, OLDEST, Release, highest_versions

# The marks of releases, newest first: an API and its highest version, which no older release has.
_RELEASES: tuple[tuple[Release, ApiKey, int], ...] = (
    ((4, 2), ApiKey.LIST_OFFSETS, 11),
    ((4, 1), ApiKey.FETCH, 18),
    ((4, 0), ApiKey.CONSUMER_GROUP_HEARTBEAT, 1),
    ((3, 9), ApiKey.FETCH, 17),
    ((3, 8), ApiKey.LIST_GROUPS, 5),
    ((3, 7), ApiKey.FETCH, 16),
    ((3, 6), ApiKey.ADD_PARTITIONS_TO_TXN, 4),
    ((3, 5), ApiKey.FETCH, 15),
    ((3, 3), ApiKey.DESCRIBE_ACLS, 3),
    ((3, 2), ApiKey.JOIN_GROUP, 9),
    ((3, 1), ApiKey.FETCH, 13),
    ((3, 0), ApiKey.FIND_COORDINATOR, 4),
    ((2, 8), ApiKey.METADATA, 11),
    ((2, 7), ApiKey.FETCH, 12),
    ((2, 6), ApiKey.LIST_GROUPS, 4),
    ((2, 5), ApiKey.JOIN_GROUP, 7),
    ((2, 4), ApiKey.METADATA, 9),
    ((2, 3), ApiKey.JOIN_GROUP, 5),
    ((2, 2), ApiKey.JOIN_GROUP, 4),
    ((2, 1), ApiKey.FETCH, 10),
)


_END_TXN_OF_2 = 5
"""The version of EndTxn that came with transaction version 2."""


class ApiVersionTable:
    """The versions of each API that a broker speaks, as its ApiVersions response says.

    `limit` is the release whose versions are the newest to be used, whatever the broker speaks.
    """

    def __init__(self, ranges: Mapping[int, tuple[int, int]], limit: Release | None = None) -> None:
        self.ranges = dict(ranges)
        self.features: dict[str, int] = {}
        """The levels of features that the cluster has finalised (KIP-584), as this broker knew them."""
        self.features_epoch = -1
        """The number of the change that made them so, -1 where the broker tells none: of two brokers the higher one knows more."""
        self._limit = limit
        self._highest = None if limit is None or limit >= NEWEST else highest_versions(limit)
        self._mock = self._is_librdkafkas_mock()

    @classmethod
    def of(cls, response: ApiVersionsResponse, limit: Release | None = None) -> ApiVersionTable:
        """Reads a response. Raises `UnrecognizedBrokerVersion` for brokers before 2.1."""
        table = cls({a.api_key: (a.min_version, a.max_version) for a in response.api_keys}, limit)
        table.broker_version()
        table.features = {f.name: f.max_version_level for f in response.finalized_features}
        table.features_epoch = response.finalized_features_epoch
        return table

    def _is_librdkafkas_mock(self) -> bool:
        """Whether it is a mock broker of librdkafka, which answers flexible versions with a byte too many, or in another format.

        It claims flexible Metadata (9) without flexible ApiVersions (3); each release of Kafka from 2.4 on has both.
        """
        metadata = self.ranges.get(ApiKey.METADATA, (0, -1))[1]
        api_versions = self.ranges.get(ApiKey.API_VERSIONS, (0, 99))[1]
        return metadata >= 9 and api_versions < 3

    def pick(
        self, request: type[Request[Any]], *, lowest: int | None = None, highest: int | None = None
    ) -> int:
        """The highest version that both sides speak, within bounds. Raises `UnsupportedVersionError`."""
        low = request.min_version if lowest is None else max(lowest, request.min_version)
        high = request.latest if highest is None else min(highest, request.latest)
        if self._mock and request.flexible_from is not None:
            high = min(high, request.flexible_from - 1)
        name = request.__name__.removesuffix("Request")
        if self._highest is not None:
            assert self._limit is not None  # both come from api_version
            high = min(high, self._highest.get(request.api_key, -1))
            if high < low:
                release = ".".join(map(str, self._limit))
                raise UnsupportedVersionError(
                    f"api_version={release} allows no {name} of version {low} or newer", request=name
                )
        if request.api_key not in self.ranges:
            raise UnsupportedVersionError(f"the broker has no {name}", request=name)
        broker_low, broker_high = self.ranges[request.api_key]
        best = min(high, broker_high)
        if best < max(low, broker_low):
            raise UnsupportedVersionError(
                f"the broker speaks {name} {broker_low} to {broker_high}, {low} to {high} is needed",
                request=name,
            )
        return best

    def transaction_version(self) -> int:
        """The finalised level of `transaction.version` (KIP-890), 0 where there is none; 1 where the requests of 2 can't be used."""
        level = self.features.get("transaction.version", 0)
        try:
            return level if self.pick(EndTxnRequest) >= _END_TXN_OF_2 else min(level, 1)
        except UnsupportedVersionError:
            return 0

    def broker_version(self) -> tuple[int, int]:
        """The newest release whose mark the broker has, as (major, minor). Raises `UnrecognizedBrokerVersion` below 2.1."""
        for release, api, version in _RELEASES:
            low, high = self.ranges.get(api, (0, -1))
            if low <= high and high >= version:
                return release
        raise UnrecognizedBrokerVersion(
            f"this is no Kafka broker of version {OLDEST[0]}.{OLDEST[1]} or newer: it speaks {_described(self.ranges)}"
        )


def first_version(latest: int, limit: Release | None) -> int:
    """The version of ApiVersions to begin with: one that a broker of the release `limit` understands."""
    return latest if limit is None else min(latest, highest_versions(limit)[ApiKey.API_VERSIONS])


def retry_version(response: ApiVersionsResponse, tried: int) -> int:
    """The version of ApiVersions to try next, after UNSUPPORTED_VERSION to the one tried (KIP-511).

    The broker names its own range where it can; every broker knows version 0.
    """
    named = _highest(response.api_keys)
    return named if 0 <= named < tried else 0


def _highest(ranges: Iterable[Any]) -> int:
    return next((a.max_version for a in ranges if a.api_key == ApiKey.API_VERSIONS), -1)


def _described(ranges: Mapping[int, tuple[int, int]]) -> str:
    known = [f"{ApiKey(k).name} {low}-{high}" for k, (low, high) in sorted(ranges.items()) if k in _KNOWN]
    return ", ".join(known[:4]) or "no API that is known here"


_KNOWN = frozenset(int(k) for k in ApiKey)


Handshake = Generator[bytes, bytes, ApiVersionTable]

T = TypeVar("T")

_SOFTWARE = "kafka-actors"


def advance(
    steps: Generator[bytes | memoryview, bytes, T], received: bytes | None
) -> tuple[bytes | memoryview, None] | tuple[None, T]:
    """Does one step: returns the next frame to send, or None and the result at the end. `received` is None at the start.

    Unlike a generator's own `send` it may run in a thread for an event loop, which can't pass on a StopIteration.
    """
    try:
        return (next(steps) if received is None else steps.send(received)), None
    except StopIteration as done:
        return None, done.value


def handshake(client_id: str, limit: Release | None = None) -> Handshake:
    """Yields requests, takes responses, returns the versions that the broker speaks.

    `limit` is the release whose versions are the newest to be used (`api_version`).
    Raises `UnrecognizedBrokerVersion` for what is no broker of 2.1 or newer, `ProtocolError` for other bytes.
    """
    version = first_version(ApiVersionsRequest.latest, limit)
    correlation_id = 0
    while True:
        request = ApiVersionsRequest(_SOFTWARE, _software_version())
        answer = yield frame(ApiKey.API_VERSIONS, version, correlation_id, client_id, request)
        response = _decode(answer, version, correlation_id)
        if response.error_code != UnsupportedVersionError.code or version == 0:
            raise_for_code(response.error_code, request="ApiVersions")
            return ApiVersionTable.of(response, limit)
        version = retry_version(response, version)
        correlation_id += 1


def _decode(answer: bytes, version: int, correlation_id: int) -> ApiVersionsResponse:
    header, body = decode_header(ApiKey.API_VERSIONS, version, "response", answer)
    if header.correlation_id != correlation_id:
        raise CorrelationIdError(
            f"ApiVersions {correlation_id} was answered with correlation id {header.correlation_id}: "
            "this is no Kafka broker"
        )
    return decode_api_versions(version, body)


def _software_version() -> str:
    from kafka_actors import __version__

    return __version__
