"""The fake cluster as one machine: bytes of clients and the time go in, bytes for clients come out.

Theory of operation. A shell reports connections (`connected`, `disconnected`), what came on them
(`received`), and the time (`poll`). It gets back what to send and which connections to close. A request goes
this way:

1. Bytes are cut into frames. A frame that is longer than Kafka's limit closes the connection.
2. Frames of a connection are carried out one after the other: the next is looked at when the response to the
   one before has been sent. So answers keep the order of requests, and a held request holds those behind it,
   as on a real broker.
3. The frame is decoded by the protocol's own declarations. What a broker of the chosen release would not
   understand closes the connection, but for ApiVersions, which is answered in version 0 with an error
   (KIP-511). Until a client is authenticated it may send only what authenticates it (`sasl`).
4. The first rule of a test that fits the request decides what happens to it (`calls`); without one it is
   carried out.
5. The part that has its API makes the response, now or later. A response becomes a `SendBytes` of the next
   `poll`, after the rule has had its say on it, too: late, twice, in part, or not at all.

The parts share `ClusterState` and know each other only where one needs the other: committing offsets asks
groups and transactions, writing asks transactions. `poll` first runs the timers that are due, then lets
groups follow their coordinators, then markers that waited for a leader, then long polls whose partitions have
changed: each may have been changed by the one before.

All randomness comes from one `Random`, all times are passed in: the same inputs give the same outputs. The
machine keeps the contract of `base.machine`; it needs no lock, threads stay outside. A broker that is stopped
loses what a killed process loses (connections, fetch sessions, waiting requests), and keeps what is in its
log or was written down.

Source: `SocketServer`, `KafkaApis.handle`; KIP-219, KIP-511.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from kafka_actors import errors
from kafka_actors.base.machine import Ready
from kafka_actors.protocol import (
    ApiKey,
    decode_header,
    decode_prefix,
    message_class,
    peek_request,
    response_frame,
)
from kafka_actors.protocol.messages.api_versions import ApiVersionsResponse
from kafka_actors.protocol.schema import Response

from .api_ranges import VersionsOfBrokers, unsupported_version, versions_response
from .calls import (
    AnswerWith,
    AnswerWithError,
    BrokerCall,
    ChangeResponse,
    ClientLink,
    Delay,
    DropConnection,
    Hold,
    HoldResponse,
    LoseResponse,
    Repeat,
    RequestRule,
    Throttle,
)
from .cluster_state import ClusterState, Release
from .config_requests import ConfigHandlers
from .error_answers import error_response
from .fetch import FetchHandlers
from .group_offsets import OffsetStore
from .group_requests import GroupHandlers
from .offset_lookups import LookupHandlers
from .offsets_requests import OffsetHandlers
from .produce import ProduceHandlers
from .sasl import BrokerSasl
from .settings import FakeBrokerSettings, feature_level
from .timers import cancel
from .topic_requests import TopicHandlers
from .transaction_requests import TransactionHandlers

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
    """Brokers of one cluster. `release` is the version of Kafka whose APIs they have, `users` those of SASL (None: no SASL),
    `transaction_version` the level of that feature (None: the newest of the release)."""

    def __init__(
        self,
        random: Random,
        *,
        release: Release = (4, 1),
        settings: FakeBrokerSettings | None = None,
        wall_ms: int = 0,
        users: Mapping[str, str] | None = None,
        transaction_version: int | None = None,
    ) -> None:
        self.state = ClusterState(release, settings or FakeBrokerSettings(), random, wall_ms)
        self.fetches = FetchHandlers(self.state)
        self.groups = GroupHandlers(self.state)
        self.rules: list[RequestRule] = []
        self.counts: Counter[ApiKey] = Counter()
        self.log: deque[BrokerCall] = deque(maxlen=_LOG_LENGTH)
        self.sasl = BrokerSasl(users, random, self.state.settings.connections_max_reauth_ms)
        group_offsets = OffsetStore()
        self.transactions = TransactionHandlers(
            self.state,
            group_offsets,
            feature_level({}, release) if transaction_version is None else transaction_version,
        )
        self.offsets = OffsetHandlers(self.state, self.groups, group_offsets, self.transactions)
        self.topics = TopicHandlers(self.state, self.offsets.topic_deleted)
        self._links: dict[int, ClientLink] = {}
        self._numbers = 0
        self._actions: list[SendBytes | CloseLink] = []
        self._accepted: Counter[int] = Counter()
        self.versions = VersionsOfBrokers(release)
        self._handlers: dict[ApiKey, Handler] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.SASL_HANDSHAKE: self.sasl.handshake,
            ApiKey.SASL_AUTHENTICATE: self.sasl.authenticate,
            **self.topics.handlers,
            **ConfigHandlers(self.state).handlers,
            **ProduceHandlers(self.state, self.transactions).handlers,
            **self.fetches.handlers,
            **LookupHandlers(self.state).handlers,
            **self.groups.handlers,
            **self.offsets.handlers,
            **self.transactions.handlers,
        }

    # ---------------------------------------------------------------- inputs

    def connected(self, node_id: int, client_host: str, now: float) -> int:
        """Notes a connection of a client to a broker. Returns its number."""
        self.state.now = now
        self._numbers += 1
        self._accepted[node_id] += 1
        self._links[self._numbers] = link = ClientLink(self._numbers, node_id, client_host)
        link.used_at = now
        if self.state.settings.connections_max_idle_ms >= 0:
            self._watch(link)
        return self._numbers

    def _watch(self, link: ClientLink) -> None:
        """Closes a connection on which nothing came or went for `connections.max.idle.ms`, or looks again when that time is over."""
        idle_at = link.used_at + self.state.settings.connections_max_idle_ms / 1000
        if idle_at <= self.state.now:
            self._close(link)
        else:
            link.timer = self.state.timers.at(idle_at, lambda: self._watch(link))

    def disconnected(self, link: int, now: float) -> None:
        """Notes that a connection is closed. What its request waits for goes on, as on a real broker; its response is lost."""
        self.state.now = now
        if (gone := self._links.pop(link, None)) is not None:
            gone.open = False
            cancel(gone.timer)

    def received(self, link: int, data: bytes, now: float) -> None:
        """Takes bytes that came on a connection: parts of requests, or several."""
        self.advance(now)
        found = self._links.get(link)
        if found is None:
            return
        found.used_at = now
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
        """Notes the time before the state is looked at or changed from outside, and does what brokers have done by then."""
        self.state.now = now
        self.state.retain()

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

    def connections(self, node_id: int | None = None, *, closed: bool = False) -> int:
        """Number of open connections to a broker, or to all; closed: with those that are closed by now."""
        nodes = [link.node_id for link in self._links.values()]
        found = self._accepted if closed else Counter(nodes)
        return found.total() if node_id is None else found[node_id]

    def poll(self, now: float) -> Ready[SendBytes | CloseLink, BrokerCall]:
        """Runs what is due, and returns what is to be sent and closed."""
        self.advance(now)
        self.state.timers.run_due(now)
        self.groups.coordinators_moved()
        self.transactions.go_on()
        self.fetches.recheck()
        actions, self._actions = tuple(self._actions), []
        return Ready(actions, (), self.state.timers.next_wake)

    # ---------------------------------------------------------------- requests

    def _go_on(self, link: ClientLink) -> None:
        """Begins the next requests of a connection, as long as each is answered at once."""
        if link.looking:  # a response that was sent at once: the loop below goes on
            return
        link.looking = True
        while link.open and link.call is None and link.frames:
            self._begin(link, link.frames.popleft())
        link.looking = False

    def _begin(self, link: ClientLink, data: bytes) -> None:
        """Decodes a frame and begins its request, or closes the connection where a broker would: for an unknown
        API or version, bytes that can't be read, and requests before the authentication.
        """
        if link.raw_sasl:
            self._raw_token(link, data)
            return
        try:
            key, version, correlation_id = peek_request(data)
            low, high = self.versions.of(link.node_id).get(key, (0, -1))
            if key == ApiKey.API_VERSIONS and not low <= version <= high:
                self.counts[ApiKey.API_VERSIONS] += 1
                answer = unsupported_version(correlation_id, low, high)
                self._actions.append(SendBytes(link.number, answer))
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
        if not self.sasl.admits(link, api_key, self.state.now):
            self._close(link)
            return
        call = BrokerCall(
            link, api_key, version, correlation_id, header.client_id, request, self.state.now, self._answer
        )
        link.call = call
        self.counts[api_key] += 1
        self.log.append(call)
        if link.sasl is not None and api_key != ApiKey.SASL_AUTHENTICATE:
            call.closes = True
            self._refuse(call, errors.IllegalSaslStateError.code)
            return
        call.rule = next((rule for rule in self.rules if rule.takes(call)), None)
        self._apply_rule(call)

    def _raw_token(self, link: ClientLink, data: bytes) -> None:
        """Takes a token that came as a frame of its own, after SaslHandshake 0."""
        token = self.sasl.raw_token(link, data, self.state.now)
        if token is None:
            self._close(link)
        else:
            self._actions.append(SendBytes(link.number, len(token).to_bytes(4) + token))

    def _apply_rule(self, call: BrokerCall) -> None:
        """Does what the call's rule wants before it is carried out; without one, or with one that is about the
        response, carries it out.
        """
        match call.rule.action if call.rule is not None else None:
            case AnswerWithError(code):
                self._refuse(call, code)
            case AnswerWith(function):
                response = function(call)
                if isinstance(response, bytes):
                    call.answered = True
                    self._actions.append(SendBytes(call.link.number, response))
                    self._free(call.link)
                else:
                    call.respond(response)
            case DropConnection():
                call.answered = True
                self._close(call.link)
            case Hold():
                assert call.rule is not None
                call.rule.on_release(lambda: self.carry_out(call))
            case _:
                self.carry_out(call)

    def _refuse(self, call: BrokerCall, code: int) -> None:
        """Answers with an error in place of carrying a request out; a producer that wants no answer has its connection closed."""
        unanswered = call.api_key == ApiKey.PRODUCE and call.request.acks == 0
        call.closes |= unanswered and code != 0
        call.respond(None if unanswered else error_response(call.request, call.version, code))

    def carry_out(self, call: BrokerCall) -> None:
        """Has a call answered by the part that has its API: also one that came without bytes, in a test of other machines."""
        if call.link.open:
            response = self._handlers[call.api_key](call)
            if response is not None:
                call.respond(response)

    def _answer(self, call: BrokerCall, response: Response | None) -> None:
        """Sends the response to a call, as its rule wants it."""
        match call.rule.action if call.rule is not None else None:
            case ChangeResponse(function):
                self._send(call, None if response is None else function(call, response))
            case Delay(seconds):
                self.state.after(int(seconds * 1000), lambda: self._send(call, response))
            case Throttle(ms):
                call.throttle_ms = ms
                self._send(call, response)
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
        """Queues the response, closes the connection if the call says so, and lets the next request begin, after
        the throttle if there is one.
        """
        link = call.link
        if not link.open:
            return
        if response is not None:
            link.used_at = self.state.now
            self._actions.append(SendBytes(link.number, self._frame(call, response)))
        if call.closes:
            self._close(link)
        if call.throttle_ms:
            self.state.after(call.throttle_ms, lambda: self._free(link))
        else:
            self._free(link)

    def _free(self, link: ClientLink) -> None:
        link.call = None
        self._go_on(link)

    def _frame(self, call: BrokerCall, response: Response) -> bytes:
        if call.throttle_ms and "throttle_time_ms" in response.__struct_fields__:
            response = replace(response, throttle_time_ms=call.throttle_ms)
        return response_frame(call.api_key, call.version, call.correlation_id, response)

    def _close(self, link: ClientLink) -> None:
        """Closes a connection, once. Requests that arrived on it and were not begun are dropped."""
        if link.open:
            link.open = False
            link.frames.clear()
            cancel(link.timer)
            self._links.pop(link.number, None)
            self._actions.append(CloseLink(link.number))

    # ---------------------------------------------------------------- versions

    def _api_versions(self, call: BrokerCall) -> ApiVersionsResponse:
        """Tells the versions of all APIs of the broker, and the level of transactions."""
        return versions_response(self.versions.of(call.node_id), self.state.release, self.transactions.level)
