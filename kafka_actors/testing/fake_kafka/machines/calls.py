"""Requests that brokers carry out, the connections on which they came, and rules by which tests take over single
ones.

Theory of operation. A connection has one request in hand at a time, like a real broker's: the next one is
looked at when the response has been sent. A `BrokerCall` is that request; a handler responds at once or keeps
the call and responds later (a long poll, a join). A call is answered once: what responds to it after that
does nothing, so a timer and an answer may both end it.

Before a handler gets a call, the first `RequestRule` that fits decides what happens to it. Rules are tried in
the order in which tests made them; one fits by API, broker, and a function of the call, so many times as the
test says. There are three moments at which something can go wrong between client and broker, and a rule
chooses one:

- before the request is carried out: an error or a made-up response in its place, a closed connection, a wait
  until `release`;
- after it was carried out and before the response: a wait until `release`, a delay, a throttle, a lost
  response, of which the client may have seen the first bytes. The client can't know then whether its request
  was carried out;
- after the response: a second copy of it.

`RequestRule.calls` has what a rule applied to, so that a test can assert what the client sent, and wait for
it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from kafka_actors.protocol import ApiKey
from kafka_actors.protocol.schema import Request, Response

from .timers import BrokerTimer


class ClientLink:
    """One connection of a client to a broker, with the frames that have arrived and are not yet looked at. `used_at` is when something
    came or went on it last, `timer` what closes it when that is long ago."""

    def __init__(self, number: int, node_id: int, client_host: str) -> None:
        self.number = number
        self.node_id = node_id
        self.client_host = client_host
        self.buffer = bytearray()
        self.frames: deque[bytes] = deque()
        self.call: BrokerCall | None = None
        self.principal: str | None = None
        self.session_ends: float | None = None
        self.renewed_at: float | None = None
        self.sasl: Any = None
        self.raw_sasl = False
        self.open = True
        self.looking = False
        self.used_at = 0.0
        self.timer: BrokerTimer | None = None


class BrokerCall:
    """A request in a broker's hand. `at` is when it came, in seconds of the cluster's clock; `closes` whether the connection is closed
    after the response, `throttle_ms` for how long its next request waits."""

    def __init__(
        self,
        link: ClientLink,
        api_key: ApiKey,
        version: int,
        correlation_id: int,
        client_id: str | None,
        request: Request[Any],
        at: float,
        reply: Callable[[BrokerCall, Response | None], None],
    ) -> None:
        self.link = link
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.request: Any = request
        self.at = at
        self.answered = False
        self.closes = False
        self.throttle_ms = 0
        self.rule: RequestRule | None = None
        self._reply = reply

    @property
    def node_id(self) -> int:
        """Id of the broker that got it."""
        return self.link.node_id

    @property
    def connection(self) -> int:
        """Number of the connection on which it came; each one has another."""
        return self.link.number

    @property
    def client_host(self) -> str:
        """Address from which it came, as Kafka writes it: `/127.0.0.1`."""
        return self.link.client_host

    def respond(self, response: Response | None) -> None:
        """Answers it, once; None sends nothing (Produce with acks=0)."""
        if not self.answered:
            self.answered = True
            self._reply(self, response)

    def __repr__(self) -> str:
        return f"BrokerCall({self.api_key.name} {self.version}, broker {self.node_id}, {self.request!r})"


# ---------------------------------------------------------------- what tests do to single requests


class AnswerWithError(Struct, frozen=True):
    """Does not carry the request out, and answers with an error code in each place where one can be; Produce with acks=0, which has no
    answer, closes the connection."""

    code: int


class AnswerWith(Struct, frozen=True):
    """Does not carry the request out, and answers with what a function of the call returns; bytes are sent as they are, without a frame."""

    function: Callable[[BrokerCall], Response | bytes]


class ChangeResponse(Struct, frozen=True):
    """Carries the request out, and answers with what a function of the call makes of the response."""

    function: Callable[[BrokerCall, Any], Response]


class Hold(Struct, frozen=True):
    """Does not carry the request out until its rule is released; the connection waits meanwhile."""


class HoldResponse(Struct, frozen=True):
    """Carries the request out, and keeps the response until its rule is released."""


class Delay(Struct, frozen=True):
    """Carries the request out, and sends the response so many seconds later."""

    seconds: float


class Throttle(Struct, frozen=True):
    """Carries the request out, and responds as where a quota is exceeded: with `throttle_time_ms`, and the connection's next request
    waits for so long."""

    ms: int


class DropConnection(Struct, frozen=True):
    """Closes the connection instead of carrying the request out."""


class LoseResponse(Struct, frozen=True):
    """Carries the request out, sends the first bytes of the response (none by default), and closes the connection."""

    sent_bytes: int = 0


class Repeat(Struct, frozen=True):
    """Carries the request out, and sends the response twice."""


RuleAction = (
    AnswerWithError
    | AnswerWith
    | ChangeResponse
    | Hold
    | HoldResponse
    | Delay
    | Throttle
    | DropConnection
    | LoseResponse
    | Repeat
)


class RequestRule:
    """Rule for requests of one API: what happens to them. `calls` are those that it applied to."""

    def __init__(
        self,
        api_key: ApiKey,
        action: RuleAction,
        *,
        times: int | None = 1,
        node_id: int | None = None,
        when: Callable[[BrokerCall], bool] | None = None,
    ) -> None:
        self.api_key = api_key
        self.action = action
        self.calls: list[BrokerCall] = []
        self.released = False
        self._left = times
        self._node_id = node_id
        self._when = when
        self._waiting: list[Callable[[], object]] = []

    def takes(self, call: BrokerCall) -> bool:
        """Whether it applies to this call; counts it if so."""
        if call.api_key != self.api_key or self._left == 0:
            return False
        if self._node_id is not None and call.node_id != self._node_id:
            return False
        if self._when is not None and not self._when(call):
            return False
        if self._left is not None:
            self._left -= 1
        self.calls.append(call)
        return True

    def on_release(self, go_on: Callable[[], object]) -> None:
        """Has `go_on` called when it is released, at once if it is."""
        if self.released:
            go_on()
        else:
            self._waiting.append(go_on)

    def release(self) -> None:
        """Lets what is held go on, and what it would hold from now on."""
        self.released = True
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def end(self) -> None:
        """Applies to no further request."""
        self._left = 0


def api_key_of(api: ApiKey | str) -> ApiKey:
    """Returns the API of a name as in Kafka's definitions. Raises `ValueError` for another name."""
    if isinstance(api, ApiKey):
        return api
    wanted = api.replace("_", "").lower()
    found = [key for key in ApiKey if key.name.replace("_", "").lower() == wanted]
    if not found:
        raise ValueError(
            f"there is no API {api!r}; names are as in Kafka's definitions, such as OffsetCommit"
        )
    return found[0]
