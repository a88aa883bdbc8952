"""docs/reference/options.md, from the declarations: `make docs-options`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from .job_options import DeclaredOption
from .option_sources import PREFIX
from .reference import SECTIONS, OptionEntry, options

__all__ = ["markdown"]

_HEAD = """\
# Options

Generated from the declarations by `make docs-options`: don't edit. Names are Kafka's with underscores. In `config={…}`, in files
and in `-X` the dotted names (`session.timeout.ms`) work too.

## Where they come from

A value on the command line wins over `KAFKA_ACTORS_<OPTION>` in the environment, then comes the file given with `-c`, then the
job's definition, then the default. `kafka-actors config show`, with the arguments of `run`, shows every value with its source;
secrets are masked. An unknown name is an error that suggests the nearest known one. An empty variable counts as unset.

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
- **Java's names** work in files: stores in PEM (`ssl.truststore.location`), `sasl.jaas.config` of the Plain, Scram and OAuthBearer
  modules, Java's classes of assignors. Options without a meaning here, such as `max.poll.records`, are ignored with a warning.
- **Secrets**: `${env:NAME}`, `${file:path}`, `${file:path:key}` (of a .properties file) and `${directory:path:name}` may stand for a
  value anywhere on the command line, in the environment and in files. The command looks them up, except for passwords: each
  process of the job that connects looks these up itself, so the variable or file has to exist on every node, and the
  password itself is never sent. (A reference within a `sasl.jaas.config` is looked up by the command.)
- The commands that ask a cluster (`groups`, `topics`, `offsets`, `lag`) take the file as `--command-config`, and ignore
  what isn't an option of a connection.
- On Spark, Java's names follow `kafka.`; Spark's own options are in [The Spark data source](spark.md).
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


def _table(listed: list[OptionEntry]) -> Iterator[str]:
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


def _default(option: OptionEntry) -> str:
    default = _code(option.default)
    return default if option.job_default is None else f"{default}; a job's {_code(option.job_default)}"


def _java(option: OptionEntry) -> str:
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
        if not isinstance(each, click.Option) or not (text := _text(each)):
            continue
        flags = ", ".join(_code(name) for name in each.opts)
        variable = each.envvar or (
            PREFIX + str(each.name).upper() if each.name not in ("pairs", "debug") else None
        )
        yield f"| {flags} | {_code(str(variable)) if variable else ''} | {text} |"


def _text(option: click.Option) -> str | None:
    return option.meaning if isinstance(option, DeclaredOption) else option.help
