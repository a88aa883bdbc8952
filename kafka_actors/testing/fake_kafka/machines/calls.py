"""Requests that brokers carry out, the connections on which they came, and rules by which tests take over single ones.

Theory of operation. A connection has one request in hand at a time, like a real broker's: the next one is looked at when the
response has been sent. A `BrokerCall` is that request; a handler responds at once or keeps the call and responds later (a long
poll, a join). Before a handler gets it, the first `RequestRule` that fits decides what happens to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from kafka_actors.protocol import ApiKey
from kafka_actors.protocol.schema import Request, Response


class ClientLink:
    """One connection of a client to a broker, with the frames that have arrived and are not yet looked at."""

    def __init__(self, number: int, node_id: int, client_host: str) -> None:
        self.number = number
        self.node_id = node_id
        self.client_host = client_host
        self.buffer = bytearray()
        self.frames: deque[bytes] = deque()
        self.call: BrokerCall | None = None
        self.principal: str | None = None
        self.sasl: Any = None
        self.raw_sasl = False
        self.open = True
        self.looking = False


class BrokerCall:
    """A request in a broker's hand. `at` is when it came, in seconds of the cluster's clock; `closes` whether the connection is closed
    after the response."""

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
        self.rule: RequestRule | None = None
        self._reply = reply

    @property
    def node_id(self) -> int:
        """Id of the broker that got it."""
        return self.link.node_id

    def respond(self, response: Response | None) -> None:
        """Answers it, once; None sends nothing (Produce with acks=0)."""
        if not self.answered:
            self.answered = True
            self._reply(self, response)

    def __repr__(self) -> str:
        return f"BrokerCall({self.api_key.name} {self.version}, broker {self.node_id}, {self.request!r})"


# ---------------------------------------------------------------- what tests do to single requests


class AnswerWithError(Struct, frozen=True):
    """Does not carry the request out, and answers with an error code in each place where one can be."""

    code: int


class AnswerWith(Struct, frozen=True):
    """Does not carry the request out, and answers with what a function of the call returns."""

    function: Callable[[BrokerCall], Response]


class Hold(Struct, frozen=True):
    """Does not carry the request out until its rule is released; the connection waits meanwhile."""


class HoldResponse(Struct, frozen=True):
    """Carries the request out, and keeps the response until its rule is released."""


class Delay(Struct, frozen=True):
    """Carries the request out, and sends the response so many seconds later."""

    seconds: float


class DropConnection(Struct, frozen=True):
    """Closes the connection instead of carrying the request out."""


class LoseResponse(Struct, frozen=True):
    """Carries the request out, sends the first bytes of the response (none by default), and closes the connection."""

    sent_bytes: int = 0


class Repeat(Struct, frozen=True):
    """Carries the request out, and sends the response twice."""


RuleAction = (
    AnswerWithError | AnswerWith | Hold | HoldResponse | Delay | DropConnection | LoseResponse | Repeat
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
