"""Finding a job that somebody else has started, by its name: which one, and where its status page can be seen from."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from kafka_actors.errors import UsageError

__all__ = ["DriverPage", "name_among", "page_from"]


class DriverPage(NamedTuple):
    """Where the status page of a job is that runs in its driver.

    `url`: None before the job has started, empty where it has no page. `node`: the IP address of the driver's machine.
    """

    url: str | None = None
    node: str = ""


def name_among(name: str | None, names: list[str]) -> str:
    """The name if it is one of these, or the only one. Raises `UsageError` that says what to give instead."""
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


def page_from(page: DriverPage, name: str, here: str) -> str:
    """The URL of the status page of the job of this name, for the machine with the IP address `here`. Raises `UsageError`
    where there is none, or none for this machine."""
    job = f"the job {name!r} runs in its driver"
    if page.url is None:
        raise UsageError(f"{job} and is just starting: try again when it has")
    if not page.url:
        raise UsageError(
            f"{job}, where only a status page lets others look at it, and it has none: start it with --status :8000, "
            "in a program with status_address=':8000', or as a detached job"
        )
    if page.node != here and ipaddress.ip_address(urlsplit(page.url).hostname or "").is_loopback:
        raise UsageError(
            f"{job} on {page.node}, and its status page, {page.url}, is for that machine alone: look there, or start "
            "it with --status 0.0.0.0:8000"
        )
    return page.url
