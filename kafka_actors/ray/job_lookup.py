"""Lookup of a running job by its name: which one is meant, and whether its status page can be reached. Without Ray."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from kafka_actors.errors import UsageError

__all__ = ["DriverPage", "name_among", "page_from"]


class DriverPage(NamedTuple):
    """Status page of a job that runs in its driver. `url`: None before the job has started, empty without a page. `node`: the
    IP address of the driver's machine."""

    url: str | None = None
    node: str = ""


def name_among(name: str | None, names: list[str]) -> str:
    """Returns the name if it is among `names`, or the only one of them. Raises `UsageError` with what to pass instead."""
    if name is None and len(names) == 1:
        return names[0]
    if name is not None and name in names:
        return name
    there = f"those with a name are {', '.join(names)}" if names else "no job here has a name"
    if name is not None:
        what = f"no job named {name!r} runs in this Ray cluster: {there}"
    else:
        what = f"which job of this Ray cluster? {there}"
    raise UsageError(
        f"{what}; any job with a status page can be given by the URL of that, as http://localhost:8000"
    )


def page_from(page: DriverPage, name: str, own_ip: str) -> str:
    """Returns the URL of a job's status page, for the machine with the IP address `own_ip`. Raises `UsageError` if it has
    none, or none that this machine can reach."""
    job = f"the job {name!r} runs in its driver"
    if page.url is None:
        raise UsageError(f"{job} and is just starting: try again when it has")
    if not page.url:
        raise UsageError(
            f"{job}, where only a status page lets others look at it, and it has none: start it with --status :8000, "
            "in a program with status_address=':8000', or as a detached job"
        )
    if page.node != own_ip and ipaddress.ip_address(urlsplit(page.url).hostname or "").is_loopback:
        raise UsageError(
            f"{job} on {page.node}, and its status page, {page.url}, is for that machine alone: look there, or start "
            "it with --status 0.0.0.0:8000"
        )
    return page.url
