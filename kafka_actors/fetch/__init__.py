"""Fetching records: the worker side (`Fetcher`) and the connection side (`BrokerFetcher`), and what they say to
each other (`messages`)."""

from .ahead import Ahead
from .broker_fetcher import BrokerFetcher
from .fetcher import Fetcher
from .machines.buffer import FetchedBytes
from .machines.partition import Standing, Start
from .messages import Fetched, FetchReply, Pull, Want
from .offsets import OffsetLookup
from .pump import RecordSource

__all__ = [
    "Ahead",
    "BrokerFetcher",
    "FetchReply",
    "Fetched",
    "FetchedBytes",
    "Fetcher",
    "OffsetLookup",
    "Pull",
    "RecordSource",
    "Standing",
    "Start",
    "Want",
]
