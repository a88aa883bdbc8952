"""Flags for declared options: the text below an option's declaration is the flag's help too."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import sys
from collections.abc import Sequence
from typing import Any

import click
from msgspec import Struct

__all__ = ["DeclaredOption", "meanings"]


class DeclaredOption(click.Option):
    """A flag that sets an option of `kind`; the names are the same. `more` ends its help.

    The text is looked up when it is shown: finding it reads the source of the declarations.
    """

    def __init__(
        self, param_decls: Sequence[str], *, kind: type[Struct], more: str = "", **attributes: Any
    ) -> None:
        super().__init__(param_decls, **attributes)
        self._kind = kind
        self._more = more

    @property
    def meaning(self) -> str:
        """The text with its Markdown."""
        assert self.name is not None  # every option of click's has one
        texts = (meanings(kind) for kind in self._kind.__mro__ if kind.__module__.startswith("kafka_actors."))
        return next(found[self.name] for found in texts if self.name in found) + self._more

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The flag's row in `--help`."""
        self.help = self.meaning.replace("`", "")
        return super().get_help_record(ctx)


@functools.cache
def meanings(kind: type) -> dict[str, str]:
    """The texts below the declarations of a class by their names; Python itself doesn't keep them."""
    tree = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
    body = next(
        node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    found = {}
    for declared, text in itertools.pairwise(body):
        if isinstance(declared, ast.AnnAssign) and isinstance(declared.target, ast.Name):
            match text:
                case ast.Expr(value=ast.Constant(value=str(said))):
                    found[declared.target.id] = " ".join(said.split())
    return found
