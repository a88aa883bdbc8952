"""`--workers 8` and `--workers 1..16`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kafka_actors.errors import ConfigError

if TYPE_CHECKING:
    from kafka_actors.actors import Autoscale

__all__ = ["Workers", "read_workers", "written_workers"]


def read_workers(given: int | str) -> int | Autoscale:
    """What the command line, the environment or a file says. Raises `ConfigError`."""
    from kafka_actors.actors.autoscale import parsed_workers

    return parsed_workers(str(given))


def written_workers(workers: int | Autoscale) -> int | str:
    """A number, or a range as text."""
    return workers if isinstance(workers, int) else str(workers)


class Workers(click.ParamType):
    """A number of workers, or the range in which there are as many as the records need."""

    name = "N|MIN..MAX"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        try:
            return written_workers(read_workers(str(value)))
        except ConfigError as error:
            self.fail(str(error).removeprefix("workers: is "), param, ctx)
