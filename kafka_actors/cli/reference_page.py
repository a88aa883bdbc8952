"""docs/reference/options.md, from the declarations: `make docs-options`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from .layers import PREFIX
from .reference import SECTIONS, Option, options

__all__ = ["markdown"]

_HEAD = """\
# Options

Made from the declarations by `make docs-options`: don't edit. Names are Kafka's with underscores; dotted ones
(`session.timeout.ms`) are the same options in `config={…}`, in files and in `-X`.

## Where they come from

A value on the command line wins over `KAFKA_ACTORS_<OPTION>` in the environment, that over the file given with `-c`, that
over the definition of the job, that over the default. `kafka-actors config show`, with the arguments of `run`, shows every
value with its source, secrets masked. An unknown name is an error that names the nearest, wherever it stands; an empty variable
counts for none.

```toml
# kafka-actors run -c job.toml
job = "orders.py:job"            # beside this file; or module:name
workers = 8
bootstrap_servers = "kafka-1:9093,kafka-2:9093"
security_protocol = "SASL_SSL"
session.timeout.ms = 30000       # dots and tables are names

[sasl]
mechanism = "SCRAM-SHA-512"
plain_username = "orders"
plain_password = "${env:KAFKA_PASSWORD}"
```

- A file whose name doesn't end in `.toml` is read as Kafka's `.properties`.
- **Java's names** in files: stores in PEM (`ssl.truststore.location`), `sasl.jaas.config` of the Plain, Scram and OAuthBearer
  modules, its classes of assignors. What has no meaning here, such as `max.poll.records`, is passed over with a warning.
- **Secrets**: `${env:NAME}`, `${file:path}`, `${file:path:key}` (of a .properties file) and `${directory:path:name}` stand for a
  value anywhere on the command line, in the environment and in files. They are looked up by the command, but for a password:
  that is looked up in each process of the job that connects, so the variable or file has to be on every node, and the
  password itself travels nowhere. (One in a `sasl.jaas.config` is looked up by the command.)
- The commands that ask a cluster (`groups`, `topics`, `offsets`, `lag`) have `--command-config` for the file, and pass over
  what isn't an option of a connection.
- Spark has Java's names after `kafka.`; its own options are in [The Spark data source](spark.md).
"""


def markdown(run: click.Command) -> str:
    """The page. `run`: the command whose flags it has."""
    parts = [_HEAD]
    for section in SECTIONS:
        parts.append(
            f"## {section.title}\n\n{section.about}\n\n" + "\n".join(_table(options(section))) + "\n"
        )
    parts.append("## Flags of `run`\n\n" + "\n".join(_flags(run)) + "\n")
    return "\n".join(parts)


def _table(listed: list[Option]) -> Iterator[str]:
    yield "| option | type | default | Java's name | Java's default | meaning |"
    yield "|---|---|---|---|---|---|"
    for option in listed:
        cells = (
            _code(option.name),
            option.type,
            _default(option),
            _code(option.java) if option.java else "",
            _java(option),
            option.meaning,
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(option: Option) -> str:
    default = _code(option.default)
    return default if option.job_default is None else f"{default}; a job's {_code(option.job_default)}"


def _java(option: Option) -> str:
    if option.java is None:
        return ""
    classes = (option.java_default or "").split(",")
    return "the same" if option.as_in_java else _code(", ".join(name.rpartition(".")[2] for name in classes))


def _code(text: str | None) -> str:
    return f"`{text}`" if text else "none"


def _flags(run: click.Command) -> Iterator[str]:
    yield "| flag | variable | meaning |"
    yield "|---|---|---|"
    for each in run.params:
        if not isinstance(each, click.Option) or not each.help:
            continue
        flags = ", ".join(_code(name) for name in each.opts)
        variable = each.envvar or (
            PREFIX + str(each.name).upper() if each.name not in ("pairs", "debug") else None
        )
        yield f"| {flags} | {_code(str(variable)) if variable else ''} | {each.help} |"
