"""The chart, and what Helm makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "helm" / "kafka-actors"

VERSIONS = ("1.28.0", "1.37.0")
"""Versions of Kubernetes: the oldest that Chart.yaml allows, and the newest."""


class Refused(Exception):
    """Refusal of Helm, with what it said."""


@dataclass
class Rendered:
    text: str

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [document for document in yaml.safe_load_all(self.text) if document]

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [document for document in self.documents if document["kind"] == kind]

    def one(self, kind: str) -> dict[str, Any]:
        (found,) = self.all(kind)
        return found

    @property
    def spec(self) -> dict[str, Any]:
        """The RayJob's."""
        return self.one("RayJob")["spec"]

    @property
    def head(self) -> dict[str, Any]:
        """The pod template of the head."""
        return self.spec["rayClusterSpec"]["headGroupSpec"]["template"]

    @property
    def groups(self) -> list[dict[str, Any]]:
        return self.spec["rayClusterSpec"]["workerGroupSpecs"]

    def pods(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every pod template that the RayJob has."""
        if "submitterPodTemplate" in self.spec:
            yield "submitter", self.spec["submitterPodTemplate"]
        if "rayClusterSpec" in self.spec:
            yield "head", self.head
            for group in self.groups:
                yield group["groupName"], group["template"]
