"""`kafka-actors schemas`: lists and shows a registry's schemas, and says what a new one would break, before anybody writes by it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafka_actors.errors import KafkaActorsError, UsageError

from .command import EXIT_DONE, EXIT_FAILED, command
from .load_target import load_target
from .option_sources import name_alone
from .output import Output
from .results import form_option, show

if TYPE_CHECKING:
    from kafka_actors.registry import SchemaRegistry
    from kafka_actors.schemas.registry import Schema, SchemaKey, SchemaType, Version

__all__ = ["schemas"]

_TYPES = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}


@click.group()
def schemas() -> None:
    """Schemas of a registry: list, show, check."""


def registry_command(function: Callable[..., int]) -> Callable[..., None]:
    """Makes a function `(output, registry, form, **options) -> exit code` the body of a command that asks a registry."""

    @click.option(
        "--registry",
        "url",
        metavar="URL[,URL]",
        required=True,
        envvar="KAFKA_ACTORS_REGISTRY",
        help="Address of the registry.",
    )
    @click.option(
        "--basic-auth",
        metavar="USER:PASSWORD",
        envvar="KAFKA_ACTORS_BASIC_AUTH",
        help="Credentials, which may be references: '${env:SR_KEY}:${env:SR_SECRET}'.",
    )
    @click.option(
        "--registry-option",
        "more",
        metavar="NAME=VALUE",
        multiple=True,
        help="Another argument of SchemaRegistry, such as ssl_cafile=ca.pem; may be repeated.",
    )
    @form_option("Form of the answer.")
    @functools.wraps(function)
    def body(
        output: Output, url: str, basic_auth: str | None, more: tuple[str, ...], form: str, **options: Any
    ) -> int:
        from kafka_actors.registry import SchemaRegistry

        named = dict(_pair(one) for one in more)
        registry = SchemaRegistry(url, basic_auth=basic_auth, **named)
        return function(output, registry, form, **options)

    return command(body)


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--registry-option {name_alone(text)!r} has no '='")
    return name.replace(".", "_"), value


@schemas.command("list")
@registry_command
def list_schemas(output: Output, registry: SchemaRegistry, form: str) -> int:
    """List the subjects, each with its latest version, schema id and type."""
    found = [registry.schema_of(subject) for subject in registry.subjects()]
    rows = [(schema.subject, str(schema.version), str(schema.id), schema.type) for schema in found]
    head = ("SUBJECT", "VERSION", "ID", "TYPE")
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]
    show(output, form, lines, [_document(schema) for schema in found])
    return EXIT_DONE


@schemas.command("show")
@click.argument("name", metavar="SUBJECT|ID")
@click.option("--version", default="latest", show_default=True, help="Version of the subject.")
@registry_command
def show_schema(output: Output, registry: SchemaRegistry, form: str, name: str, version: str) -> int:
    """Show the text of a schema, of a subject or by its id."""
    found = (
        registry.schema_by_id(int(name)) if name.isdecimal() else registry.schema_of(name, _version(version))
    )
    show(output, form, [found.text], {**_document(found), "schema": found.text})
    return EXIT_DONE


def _version(text: str) -> Version:
    if text == "latest":
        return "latest"
    if not text.isdecimal():
        raise UsageError(f"--version is {text!r}: accepts a number, or 'latest'")
    return int(text)


def _document(schema: Schema) -> dict[str, Any]:
    return {"subject": schema.subject, "version": schema.version, "id": schema.id, "type": schema.type}


# ---------------------------------------------------------------- what a new version would break


@schemas.command()
@click.argument("subject")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--pipeline", "target", metavar="FILE.py:NAME", help="Pipeline that has to go on with it.")
@registry_command
def check(
    output: Output, registry: SchemaRegistry, form: str, subject: str, file: Path, target: str | None
) -> int:
    """Say what a new version of SUBJECT in FILE (.avsc, .proto) would break: by the registry's own rule, and for a pipeline that reads
    by the present version, or by the new one once it is started again. Exit code 1 if it would break anything."""
    kind: Any = _TYPES.get(file.suffix)
    if kind is None:
        raise UsageError(f"{file} is no schema: accepts {', '.join(_TYPES)}")
    text = file.read_text(encoding="utf-8")
    problems = [f"the registry: {problem}" for problem in registry.compatibility(subject, text, kind)]
    if target is not None:
        problems += _problems_of(target, registry, subject, text, kind)
    lines = problems or [f"{subject}: nothing would break"]
    show(output, form, lines, {"subject": subject, "compatible": not problems, "problems": problems})
    return EXIT_FAILED if problems else EXIT_DONE


def _problems_of(target: str, registry: Any, subject: str, text: str, kind: SchemaType) -> Iterator[str]:
    """Problems of a pipeline: with values by the new schema while it reads by the present one, and when it is started anew."""
    from kafka_actors.pipeline import Pipeline
    from kafka_actors.schemas.reader_schema import ReaderSchema

    found: Any = load_target(target).found
    pipeline = getattr(found, "pipeline", found)
    if not isinstance(pipeline, Pipeline):
        raise UsageError(f"{target} is a Job, whose function decodes by itself: give a Pipeline")
    coming = _WithNewVersion(registry, subject, text, kind)
    topics = pipeline.source.topics if pipeline.source is not None else None
    for stage in pipeline.stages:
        reader = getattr(stage, "reader", None)
        if isinstance(reader, ReaderSchema) and (problem := _reading(reader, coming, stage.name, topics)):
            yield f"{stage.name}, which reads by the present schema: {problem}"
    try:
        _asking(pipeline, coming).ready().check()
    except KafkaActorsError as error:
        yield f"the pipeline, started anew: {str(error).replace(str(coming.new), 'the new schema')}"


def _asking(pipeline: Any, registry: Any) -> Any:
    """The pipeline, whose decoders and sinks ask another registry; none of the sinks registers anything."""
    from msgspec.structs import replace

    def asking(stage: Any) -> Any:
        if getattr(stage, "reader", None) is not None:
            return replace(stage, reader=replace(stage.reader, registry=registry), decoder=None)
        writer = getattr(stage, "writer", None)
        if writer is None:
            return stage
        return replace(
            stage, writer=None if writer.register else replace(writer, registry=registry), encoder=None
        )

    return replace(pipeline, stages=tuple(map(asking, pipeline.stages)))


def _reading(reader: Any, coming: _WithNewVersion, stage: str, topics: Any) -> str:
    """Why values by the new schema can't be decoded by the present one; empty where they can."""
    from msgspec.structs import replace

    decoder, schema, _ = replace(reader, registry=coming.present).chosen(stage, topics)
    if schema.subject != coming.subject:
        return ""
    reason: str = decoder.refusal(coming.new)
    return reason


_NEW = 2**32 - 1
"""The id of a schema that isn't registered, which no other one has."""


class _WithNewVersion:
    """A registry in which a subject has one version more."""

    def __init__(self, present: Any, subject: str, text: str, kind: SchemaType) -> None:
        from kafka_actors.schemas.registry import Schema

        self.present = present
        self.subject = subject
        self.new = Schema(_NEW, kind, text, (), subject, None)

    def schema_of(self, subject: str, version: Version = "latest") -> Schema:
        if subject == self.subject and version == "latest":
            return self.new
        found: Schema = self.present.schema_of(subject, version)
        return found

    def known_schemas(self, subject: str) -> Mapping[SchemaKey, Schema]:
        known: Mapping[SchemaKey, Schema] = self.present.known_schemas(subject)
        return known

    def references_of(self, schema: Schema) -> Mapping[str, str]:
        found: Mapping[str, str] = self.present.references_of(schema)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.present, name)
