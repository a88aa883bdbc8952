"""GSSAPI: the initiator's side of a Kerberos context, with the tickets of this process, and the meaning of its errors.

The library finds the tickets: in the cache that `KRB5CCNAME` names (`kinit`), or with the keytab that `KRB5_CLIENT_KTNAME` names,
by which it fetches them, and again before they expire.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from typing import Any

from kafka_actors.base.backoff import exponential_backoff
from kafka_actors.config import ClientConfig
from kafka_actors.errors import ConnectionFailedError, SaslError
from kafka_actors.net.machines.sasl import Steps, gssapi

_ATTEMPTS = 4
_PAUSE_S = 0.4
"""The pause after the first attempt; it doubles with each."""

_BASE = -1765328384
"""Kerberos numbers its errors from here (krb5's krb5_err.et); in GSSAPI they are the minor status."""
_UNREACHABLE = {_BASE + 29, _BASE + 156, _BASE + 220}
"""Errors that may pass: the KDC says that a service is not available now, no KDC answers, their names can't be resolved."""

_TICKETS = "run kinit, or name a keytab in KRB5_CLIENT_KTNAME"
_HINTS = {
    _BASE + 7: "sasl_kerberos_service_name and sasl_kerberos_domain_name make that name",
    _BASE + 31: "the keytab has another key than the KDC",
    _BASE + 32: _TICKETS,  # expired
    _BASE + 141: _TICKETS,  # there is none
}


def kerberos(config: ClientConfig, host: str) -> Steps:
    """The steps of GSSAPI at the broker `host`, or at `sasl_kerberos_domain_name` in its place.

    Tries four times to reach a KDC, then raises `ConnectionFailedError`. Raises `SaslError` for all other errors, with
    Kerberos's own text and what to do.
    """
    try:
        import gssapi as library
    except ImportError as error:  # it is installed, or the options had been refused
        raise SaslError(f"GSSAPI: the package gssapi can't be loaded: {error}") from error
    errors: Any = library.exceptions
    name = f"{config.sasl_kerberos_service_name}@{config.sasl_kerberos_domain_name or host}"
    try:
        kind: Any = library.NameType.hostbased_service
        target = library.Name(name, name_type=kind).canonicalize(library.MechType.kerberos)
        for attempt in range(1, _ATTEMPTS + 1):
            steps = gssapi(library.SecurityContext(name=target, usage="initiate"))
            try:
                first = next(steps)  # asks the KDC
                break
            except errors.GSSError as error:
                if attempt == _ATTEMPTS or _minor(error) not in _UNREACHABLE:
                    raise
            time.sleep(exponential_backoff(attempt, _PAUSE_S, math.inf))
        yield from _resumed(steps, first)
    except errors.GSSError as error:
        kind = ConnectionFailedError if _minor(error) in _UNREACHABLE else SaslError
        raise kind(f"GSSAPI: {name}: {_why(error)}") from error


def _resumed(steps: Steps, message: bytes) -> Generator[bytes, bytes, None]:
    """Yields the first message of steps that have begun, then the rest of them."""
    while True:
        received = yield message
        try:
            message = steps.send(received)
        except StopIteration:
            return


def _minor(error: Any) -> int:
    """The minor status as Kerberos numbers it: a negative number of 32 bits."""
    code = int(error.min_code)
    return code - (1 << 32) if code >= 1 << 31 else code


def _why(error: Any) -> str:
    """The cause on one line: the minor status, because the major one only says where it was noticed."""
    words = error.get_all_statuses(error.min_code, False) if error.min_code else []
    reason = "; ".join(words or error.get_all_statuses(error.maj_code, True)).replace("\n", " ")
    hint = _HINTS.get(_minor(error))
    return f"{reason}: {hint}" if hint else reason
