"""JSON schemas for kubeconform: of custom resources, from their definitions, and of Kubernetes' own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # definitions are megabytes


def write_kubernetes(schemas: Path, directory: Path) -> None:
    """Copies one version's schemas out of kubernetes-validate, where they refer to each other by addresses on the web."""
    directory.mkdir()
    for file in (*schemas.glob("*-v1.json"), schemas / "_definitions.json"):
        schema = json.loads(file.read_text().replace('"/api/_definitions.json#', '"_definitions.json#'))
        schema.pop("$id", None)
        (directory / file.name).write_text(json.dumps(schema))


def write_schemas(definition: Path, directory: Path) -> list[str]:
    """Writes one `kind_version.json` for each version in a file with a CustomResourceDefinition; returns the names."""
    names = []
    for document in yaml.load_all(definition.read_text(), _LOADER):
        if document is None or document.get("kind") != "CustomResourceDefinition":
            continue
        kind = document["spec"]["names"]["kind"].lower()
        for version in document["spec"]["versions"]:
            name = f"{kind}_{version['name']}.json"
            schema = _closed(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            (directory / name).write_text(json.dumps(schema))
            names.append(name)
    return names


def _closed(schema: Any) -> Any:
    """The API server drops fields that a definition doesn't have; kubeconform is to find them."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not open_ended:
        closed["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        closed.pop("type", None)
    if schema.get("nullable") and isinstance(schema.get("type"), str):
        closed["type"] = [schema["type"], "null"]
    return closed
