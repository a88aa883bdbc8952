"""Reference of all options: type, default and meaning from their declarations, and names and defaults of Java's clients.

`make docs-options` writes it to docs/reference/options.md. A name in Java is ours with dots and a default is ours, unless
the tables here say otherwise; tests/integration/test_options_java.py compares them with Kafka's own `ConfigDef`s.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click
import msgspec
from msgspec import Struct

from kafka_actors.config.security import Secret
from kafka_actors.options import ClientConfig, ConsumerConfig, JobConfig, ProducerConfig

from .job_options import DeclaredOption, RunConfig, meanings
from .option_sources import PREFIX

__all__ = [
    "JAVA_DEFAULTS",
    "JAVA_NAMES",
    "NOT_IN_JAVA",
    "SECTIONS",
    "OptionEntry",
    "OptionSection",
    "java_name",
    "markdown",
    "options",
]

_UNITS = {"_ms": "milliseconds", "_s": "seconds", "_bytes": "bytes"}
_SIZES = ("batch_size", "max_request_size", "buffer_memory")


class OptionSection(Struct, frozen=True):
    """Options that are declared together."""

    title: str
    kind: type[Struct]
    about: str


SECTIONS = (
    OptionSection("Connections", ClientConfig, "Of a `Consumer`, a `Job`, a `Producer` and an `Admin`."),
    OptionSection("Reading, and the group", ConsumerConfig, "Of a `Consumer` and a `Job`."),
    OptionSection("Jobs", JobConfig, "Of a `Job` alone."),
    OptionSection("Sending", ProducerConfig, "Of a `Producer` and a `KafkaSink`."),
    OptionSection("Runs", RunConfig, "Of `kafka-actors run`, beside those of a job."),
)


class OptionEntry(Struct, frozen=True):
    """An option. `default` and `java_default` are written as in a file, None for none; `job_default`: the default of a job
    where it differs; `java`: the name in Java's clients, None where they have no such option."""

    name: str
    type: str
    default: str | None
    job_default: str | None
    java: str | None
    java_default: str | None
    meaning: str

    @property
    def as_in_java(self) -> bool:
        """Whether the default is Java's."""
        return self.java is not None and self.name not in JAVA_DEFAULTS


def options(section: OptionSection) -> list[OptionEntry]:
    """Options that the Struct of a section declares, in its order, without those whose default alone it changes."""
    kind = section.kind
    inherited = {
        name for base in kind.__mro__[1:] if issubclass(base, ClientConfig) for name in base.__struct_fields__
    }
    hints = get_type_hints(kind, include_extras=True)
    texts = meanings(kind)
    own = [field for field in msgspec.structs.fields(kind) if field.name not in inherited]
    return [_option(section, field, hints[field.name], texts[field.name]) for field in own]


def _option(section: OptionSection, field: msgspec.structs.FieldInfo, hint: Any, meaning: str) -> OptionEntry:
    default = written(_default_of(section.kind, field.name))
    of_job = written(_default_of(JobConfig, field.name)) if issubclass(JobConfig, section.kind) else default
    java = java_name(field.name)
    return OptionEntry(
        name=field.name,
        type="name, or an object" if hint is Any and default else type_of(field.name, hint),
        default=default,
        job_default=of_job if of_job != default else None,
        java=java,
        java_default=None if java is None else JAVA_DEFAULTS.get(field.name, default) or None,
        meaning=meaning,
    )


def _default_of(kind: type[Struct], name: str) -> Any:
    if name == "client_id":  # the page stays the same from release to release
        return "kafka-actors-{version}"
    return getattr(kind(), name)


def written(value: Any) -> str | None:
    """Value as it is written in a file of options."""
    if value is None or value == "" or value == {}:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(" ".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def type_of(name: str, hint: Any) -> str:
    """Type of an option in words: unit, bounds, choices."""
    bounds = [meta for meta in getattr(hint, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
    if bounds:
        return _number(name, get_args(hint)[0], bounds[0])
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return type_of(name, next(part for part in get_args(hint) if part is not types.NoneType))
    if origin is Literal:
        return ", ".join(str(choice) for choice in get_args(hint))
    if origin is list:
        return "list"
    if origin is tuple:
        return "release, such as 3.9" if name == "api_version" else "list of number triples"
    if origin is dict:
        return "table"
    return {bool: "true, false", str: "text", Secret: "secret"}.get(hint, "object")


def _number(name: str, number: type, bounds: msgspec.Meta) -> str:
    unit = next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), None)
    if name in _SIZES:
        unit = "bytes"
    above = f"above {bounds.gt}" if bounds.gt is not None else f"from {bounds.ge}"
    return f"{unit or ('number' if number is float else 'whole number')}, {above}"


# ------------------------------------------------------------ Java's clients


NOT_IN_JAVA = frozenset(
    {
        # connections
        "api_version",
        "api_version_auto_timeout_ms",
        "metric_group_prefix",
        "metrics",
        "sasl_identity",
        "sasl_kerberos_domain_name",
        "sasl_oauth_token_provider",
        "socket_options",
        "ssl_context",
        "ssl_crlfile",
        # reading
        "batch_rows",
        "max_decompressed_batch_bytes",
        "on_bad_batch",
        "on_data_loss",
        "worker_buffer_bytes",
        # jobs
        "batch_linger_ms",
        "concurrency",
        "delivery",
        "drain_timeout_ms",
        "max_in_flight_records",
        "lanes_per_partition",
        "on_error",
        "ordering",
        "ping_interval_ms",
        "ping_timeout_ms",
        "rebalance_timeout_ms",
        "redact_keys",
        "retries",  # Java's are those of a request
        "start_timeout_s",
        "worker_assignor",
        "worker_capacity",
        # a run
        "dead_letter_topic",
        "job",
        "name",
        "pattern",
        "resources_per_worker",
        "status",
        "otlp",
        "prometheus",
        "topics",
        "until",
        "checkpoint",
        "engine",
        "spark_options",
        "trigger",
        "workers",
    }
)
"""Options that Java's clients don't have."""

JAVA_NAMES = {
    "ssl_cafile": "ssl.truststore.location",
    "ssl_certfile": "ssl.keystore.location",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm",
    "ssl_ciphers": "ssl.cipher.suites",
    "ssl_keyfile": "ssl.keystore.location",
    "ssl_password": "ssl.key.password",
    "sasl_plain_username": "sasl.jaas.config",
    "sasl_plain_password": "sasl.jaas.config",
}
"""Names of Java's clients that differ from ours with dots."""

_OF_CONSUMER = "org.apache.kafka.clients.consumer."
JAVA_DEFAULTS: dict[str, str] = {
    "bootstrap_servers": "",
    "client_id": "",
    "batch_size": "16384",
    "max_partition_fetch_bytes": "1048576",
    "partition_assignment_strategy": f"{_OF_CONSUMER}RangeAssignor,{_OF_CONSUMER}CooperativeStickyAssignor",
    "receive_buffer_bytes": "65536",
    "sasl_kerberos_service_name": "",
    "sasl_mechanism": "GSSAPI",
    "send_buffer_bytes": "131072",
    "ssl_check_hostname": "https",
}
"""Defaults of Java's clients that differ from ours: the consumer's, or the producer's where only it has the option."""


def java_name(option: str) -> str | None:
    """Name of an option in Java's clients; None where they have no such option."""
    return None if option in NOT_IN_JAVA else JAVA_NAMES.get(option, option.replace("_", "."))


# ------------------------------------------------------------ the page


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
- **Java's names** work in files: stores in PEM (`ssl.truststore.location`), `sasl.jaas.config` of the Plain, Scram, OAuthBearer
  and IAM modules, Java's classes of assignors. Options without a meaning here, such as `max.poll.records`, are ignored with a warning.
- **Secrets**: `${env:NAME}`, `${file:path}`, `${file:path:key}` (of a .properties file) and `${directory:path:name}` may stand for a
  value anywhere on the command line, in the environment and in files. The command looks them up, except for passwords: each
  process of the job that connects looks these up itself, so the variable or file has to exist on every node, and the
  password itself is never sent. (A reference within a `sasl.jaas.config` is looked up by the command.)
- The commands that ask a cluster (`groups`, `topics`, `configs`, `acls`, `offsets`, `lag`, `dead-letters`) take the file as
  `--command-config`, and ignore what isn't an option of a connection; `consume` and `produce` take theirs from it, too, but for
  the group.
- On Spark, Java's names follow `kafka.`; Spark's own options are in [The Spark data source](spark.md).
"""


def markdown(run: click.Command) -> str:
    """Page of all options in Markdown. `run`: the command whose flags it lists."""
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
            _default_cell(option),
            _code(option.java) if option.java else "",
            _java_cell(option),
            option.meaning,
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default_cell(option: OptionEntry) -> str:
    default = _code(option.default)
    return default if option.job_default is None else f"{default}; a job's {_code(option.job_default)}"


def _java_cell(option: OptionEntry) -> str:
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
        if not isinstance(each, click.Option) or not (text := _meaning(each)):
            continue
        flags = ", ".join(_code(name) for name in each.opts)
        variable = each.envvar or (
            PREFIX + str(each.name).upper() if each.name not in ("pairs", "debug") else None
        )
        yield f"| {flags} | {_code(str(variable)) if variable else ''} | {text} |"


def _meaning(option: click.Option) -> str | None:
    return option.meaning if isinstance(option, DeclaredOption) else option.help
