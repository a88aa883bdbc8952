"""The fake cluster as one machine: bytes of clients and the time go in, bytes for clients come out.

Theory of operation. A shell reports connections (`connected`, `disconnected`), what came on them (`received`), and the time
(`poll`). Each request is decoded by the protocol's own declarations and given to the part that has its API; its response becomes a
`SendBytes` of the next `poll`. Requests of a connection are carried out one after the other. What a broker of the chosen release
would not understand closes the connection, as there. All randomness comes from one `Random`, all times are passed in: the same
inputs give the same outputs. The machine keeps the contract of `base.machine`; it needs no lock, threads stay outside.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from kafka_actors import errors
from kafka_actors.base.machine import Ready
from kafka_actors.protocol import (
    ApiKey,
    decode_header,
    decode_prefix,
    encode,
    message_class,
    peek_request,
    response_frame,
)
from kafka_actors.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kafka_actors.protocol.schema import Response

from .api_ranges import announced, api_ranges
from .calls import (
    AnswerWith,
    AnswerWithError,
    BrokerCall,
    ClientLink,
    Delay,
    DropConnection,
    Hold,
    HoldResponse,
    LoseResponse,
    Repeat,
    RequestRule,
)
from .cluster_state import ClusterState, Release
from .config_requests import ConfigHandlers
from .error_answers import error_response
from .fetch import FetchHandlers
from .group_requests import GroupHandlers
from .offset_lookups import LookupHandlers
from .offsets_requests import OffsetHandlers
from .produce import ProduceHandlers
from .sasl import OPEN_APIS, BrokerSasl
from .settings import FakeBrokerSettings
from .topic_requests import TopicHandlers

if TYPE_CHECKING:
    from random import Random

MAX_REQUEST_BYTES = 100 << 20
"""Kafka's `socket.request.max.bytes`."""
_LOG_LENGTH = 1_000

Handler = Callable[[BrokerCall], Response | None]


class SendBytes(Struct, frozen=True):
    """Send these bytes on a connection."""

    link: int
    data: bytes


class CloseLink(Struct, frozen=True):
    """Close a connection, after what was sent on it before."""

    link: int


class FakeCluster:
    """Brokers of one cluster. `release` is the version of Kafka whose APIs they have, `users` those of SASL (None: no SASL)."""

    def __init__(
        self,
        random: Random,
        *,
        release: Release = (4, 1),
        settings: FakeBrokerSettings | None = None,
        wall_ms: int = 0,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self.state = ClusterState(release, settings or FakeBrokerSettings(), random, wall_ms)
        self.fetches = FetchHandlers(self.state)
        self.groups = GroupHandlers(self.state)
        self.rules: list[RequestRule] = []
        self.counts: Counter[ApiKey] = Counter()
        self.log: deque[BrokerCall] = deque(maxlen=_LOG_LENGTH)
        self.sasl = BrokerSasl(users, random)
        self.offsets = OffsetHandlers(self.state, self.groups)
        self.topics = TopicHandlers(self.state, self.offsets.forget_topic)
        self._links: dict[int, ClientLink] = {}
        self._numbers = 0
        self._actions: list[SendBytes | CloseLink] = []
        self._ranges = api_ranges(release)
        self._handlers: dict[ApiKey, Handler] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.SASL_HANDSHAKE: self.sasl.handshake,
            ApiKey.SASL_AUTHENTICATE: self.sasl.authenticate,
            **self.topics.handlers,
            **ConfigHandlers(self.state).handlers,
            **ProduceHandlers(self.state).handlers,
            **self.fetches.handlers,
            **LookupHandlers(self.state).handlers,
            **self.groups.handlers,
            **self.offsets.handlers,
        }

    # ---------------------------------------------------------------- inputs

    def connected(self, node_id: int, client_host: str, now: float) -> int:
        """Notes a connection of a client to a broker. Returns its number."""
        self.state.now = now
        self._numbers += 1
        self._links[self._numbers] = ClientLink(self._numbers, node_id, client_host)
        return self._numbers

    def disconnected(self, link: int, now: float) -> None:
        """Notes that a connection is closed. What its request waits for goes on, as on a real broker; its response is lost."""
        self.state.now = now
        if (gone := self._links.pop(link, None)) is not None:
            gone.open = False

    def received(self, link: int, data: bytes, now: float) -> None:
        """Takes bytes that came on a connection: parts of requests, or several."""
        self.state.now = now
        found = self._links.get(link)
        if found is None:
            return
        found.buffer += data
        while len(found.buffer) >= 4:
            size = int.from_bytes(found.buffer[:4])
            if size > MAX_REQUEST_BYTES:
                self._close(found)
                return
            if len(found.buffer) < 4 + size:
                break
            found.frames.append(bytes(found.buffer[4 : 4 + size]))
            del found.buffer[: 4 + size]
        self._go_on(found)

    def advance(self, now: float) -> None:
        """Notes the time before the state is changed from outside."""
        self.state.now = now

    def stop_node(self, node_id: int) -> None:
        """Ends a broker as a kill does: connections, fetch sessions and waiting requests are gone, leaders and groups move."""
        self.state.set_alive(node_id, False)
        self.close_links(node_id)
        self.fetches.restarted(node_id)
        self.groups.restarted(node_id)

    def close_links(self, node_id: int | None = None) -> None:
        """Closes all connections, or those of one broker."""
        for link in list(self._links.values()):
            if node_id is None or link.node_id == node_id:
                self._close(link)

    def poll(self, now: float) -> Ready[SendBytes | CloseLink, BrokerCall]:
        """Runs what is due, and returns what is to be sent and closed."""
        self.state.now = now
        self.state.timers.run_due(now)
        self.groups.coordinators_moved()
        self.fetches.recheck()
        actions, self._actions = tuple(self._actions), []
        return Ready(actions, (), self.state.timers.next_wake)

    # ---------------------------------------------------------------- requests

    def _go_on(self, link: ClientLink) -> None:
        if link.looking:  # a response that was sent at once: the loop below goes on
            return
        link.looking = True
        while link.open and link.call is None and link.frames:
            self._begin(link, link.frames.popleft())
        link.looking = False

    def _begin(self, link: ClientLink, data: bytes) -> None:
        if link.raw_sasl:
            self._raw_token(link, data)
            return
        try:
            key, version, correlation_id = peek_request(data)
            low, high = self._ranges.get(key, (0, -1))
            if key == ApiKey.API_VERSIONS and not low <= version <= high:
                self._actions.append(SendBytes(link.number, self._unsupported(correlation_id)))
                return
            if not low <= version <= high:
                raise errors.UnsupportedVersionError(f"API {key} version {version}")
            header, body = decode_header(key, version, "request", data)
            # Kafka ignores bytes behind a request: librdkafka 2.16 sends three behind Metadata for all topics.
            request: Any = decode_prefix(message_class(key, "request"), version, body)[0]
        except (errors.DecodeError, errors.UnsupportedVersionError):
            self._close(link)
            return
        api_key = ApiKey(key)
        if self.sasl.required and link.principal is None and api_key not in OPEN_APIS:
            self._close(link)
            return
        call = BrokerCall(
            link, api_key, version, correlation_id, header.client_id, request, self.state.now, self._answer
        )
        link.call = call
        self.counts[api_key] += 1
        self.log.append(call)
        call.rule = next((rule for rule in self.rules if rule.takes(call)), None)
        self._apply_rule(call)

    def _raw_token(self, link: ClientLink, data: bytes) -> None:
        token = self.sasl.raw_token(link, data)
        if token is None:
            self._close(link)
        else:
            self._actions.append(SendBytes(link.number, len(token).to_bytes(4) + token))

    def _apply_rule(self, call: BrokerCall) -> None:
        match call.rule.action if call.rule is not None else None:
            case AnswerWithError(code):
                call.respond(error_response(call.request, call.version, code))
            case AnswerWith(function):
                call.respond(function(call))
            case DropConnection():
                call.answered = True
                self._close(call.link)
            case Hold():
                assert call.rule is not None
                call.rule.on_release(lambda: self._carry_out(call))
            case _:
                self._carry_out(call)

    def _carry_out(self, call: BrokerCall) -> None:
        if call.link.open:
            response = self._handlers[call.api_key](call)
            if response is not None:
                call.respond(response)

    def _answer(self, call: BrokerCall, response: Response | None) -> None:
        """Sends the response to a call, as its rule wants it."""
        match call.rule.action if call.rule is not None else None:
            case Delay(seconds):
                self.state.after(int(seconds * 1000), lambda: self._send(call, response))
            case HoldResponse():
                assert call.rule is not None
                call.rule.on_release(lambda: self._send(call, response))
            case LoseResponse(sent_bytes):
                if response is not None:
                    self._actions.append(
                        SendBytes(call.link.number, self._frame(call, response)[:sent_bytes])
                    )
                self._close(call.link)
            case Repeat():
                if response is not None:
                    self._actions.append(SendBytes(call.link.number, self._frame(call, response)))
                self._send(call, response)
            case _:
                self._send(call, response)

    def _send(self, call: BrokerCall, response: Response | None) -> None:
        link = call.link
        if not link.open:
            return
        link.call = None
        if response is not None:
            self._actions.append(SendBytes(link.number, self._frame(call, response)))
        if call.closes:
            self._close(link)
        self._go_on(link)

    def _frame(self, call: BrokerCall, response: Response) -> bytes:
        return response_frame(call.api_key, call.version, call.correlation_id, response)

    def _close(self, link: ClientLink) -> None:
        if link.open:
            link.open = False
            link.frames.clear()
            self._links.pop(link.number, None)
            self._actions.append(CloseLink(link.number))

    # ---------------------------------------------------------------- versions

    def _api_versions(self, call: BrokerCall) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(key, low, high) for key, (low, high) in sorted(announced(self._ranges).items())
            ]
        )

    def _unsupported(self, correlation_id: int) -> bytes:
        """The answer to an unknown version of ApiVersions: in version 0, from Kafka 2.4 on with the range of ApiVersions itself (KIP-511)."""
        low, high = self._ranges[ApiKey.API_VERSIONS]
        named = [ApiVersion(int(ApiKey.API_VERSIONS), low, high)] if high >= 3 else []
        body = encode(ApiVersionsResponse(error_code=errors.UnsupportedVersionError.code, api_keys=named), 0)
        return (4 + len(body)).to_bytes(4) + correlation_id.to_bytes(4, signed=True) + body
