"""All commands of `kafka-actors`, and the exit code of the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from kafka_actors import __version__

from .acls import acls
from .command import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, describe
from .config import config
from .configs import configs
from .consume import consume
from .dead_letters import dead_letters
from .demo.command import demo
from .groups import groups
from .job import job
from .lag import lag
from .offsets import offsets
from .produce import produce
from .run import run
from .schemas import schemas
from .spark_checkpoint import spark_checkpoint
from .top import top
from .topics import topics

__all__ = ["commands", "run_command_line"]

PROGRAM = "kafka-actors"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def commands() -> None:
    """Kafka consumer groups as actors on Ray, and the daily life of groups and topics.

    Exit codes: 0 done, 1 failed, 2 wrong usage. Options can be given in the environment too, as
    KAFKA_ACTORS_<OPTION>, and in a file; the command line wins over the environment, and that over the file.
    """


GROUPS_AND_TOPICS = (produce, consume, groups, topics, configs, acls, offsets, lag, dead_letters, schemas)

for each in (run, top, job, config, demo, *GROUPS_AND_TOPICS, spark_checkpoint):
    commands.add_command(each)


def run_command_line(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code. Wrong usage is reported in one line on stderr."""
    try:
        code = commands.main(arguments, prog_name=PROGRAM, standalone_mode=False)
        return int(code or EXIT_DONE)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return EXIT_USAGE
    except click.ClickException as error:
        print(f"{PROGRAM}: error: {describe(error)}", file=sys.stderr)  # noqa: T201  what users read
        return EXIT_USAGE
    except click.Abort:
        print(f"{PROGRAM}: error: interrupted", file=sys.stderr)  # noqa: T201  what users read
        return EXIT_FAILED
