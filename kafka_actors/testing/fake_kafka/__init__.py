"""`FakeKafka`: Kafka brokers in this process, in memory.

`machines` decide everything without IO; `sockets` is the shell for clients of this machine.
"""

from .fake_kafka import FakeKafka, TakenRequests
from .machines.calls import (
    AnswerWith,
    AnswerWithError,
    BrokerCall,
    ChangeResponse,
    Delay,
    DropConnection,
    Hold,
    HoldResponse,
    LoseResponse,
    Repeat,
    Throttle,
)

__all__ = [
    "AnswerWith",
    "AnswerWithError",
    "BrokerCall",
    "ChangeResponse",
    "Delay",
    "DropConnection",
    "FakeKafka",
    "Hold",
    "HoldResponse",
    "LoseResponse",
    "Repeat",
    "TakenRequests",
    "Throttle",
]
