"""Token providers that are named by an import path, made once in each process that connects; and the SDKs of clouds."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from typing import Any

from kafka_actors.base.callables import error_text
from kafka_actors.config.references import resolve
from kafka_actors.errors import KafkaActorsError, SaslError

__all__ = ["made", "one_line", "sdk", "user_agent"]

_MAX_SHOWN = 300
"""Characters of an SDK's text that are shown in an error."""

_made: dict[tuple[int, str, str], Any] = {}


def made(path: str, arguments: Mapping[str, Any] | None) -> Any:
    """Returns what `module:name` makes of the arguments: this process's one provider for them.

    References in the arguments (`${env:NAME}`, `${file:path}`) are looked up here. Raises `SaslError` where the module or the
    name isn't there, or it fails; `ConfigError` for a reference that leads nowhere.
    """
    found = {
        name: resolve("sasl_identity", value) if isinstance(value, str) else value
        for name, value in (arguments or {}).items()
    }
    # By process, because an SDK's credentials don't survive a fork.
    key = (os.getpid(), path, json.dumps(found, sort_keys=True, default=repr))
    if key not in _made:
        # User code, so without a lock: of two that are made at once one is kept.
        _made.setdefault(key, _make(path, found))
    return _made[key]


def _make(path: str, arguments: Mapping[str, Any]) -> Any:
    module, _, name = path.partition(":")
    try:
        maker: Any = importlib.import_module(module)
        for part in name.split("."):
            maker = getattr(maker, part)
        return maker(**arguments)
    except KafkaActorsError:
        raise
    except Exception as error:  # the user's code
        suffix = f" with {', '.join(arguments)}" if arguments else ""
        raise SaslError(f"the token provider {path} can't be made{suffix}: {one_line(error)}") from None


def sdk(module: str, extra: str) -> Any:
    """A module of a cloud's SDK. Raises `SaslError` with the `pip install` that brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SaslError(
            f"{module} can't be loaded here ({one_line(error)}): "
            f'pip install "kafka-actors[{extra}]", on every node that connects'
        ) from None


def user_agent() -> str:
    """The name and release of this library, as the SDKs of clouds give theirs."""
    from kafka_actors import __version__

    return f"kafka-actors/{__version__}"


def one_line(error: BaseException) -> str:
    """The kind and the text of an error on one line, cut where it is long."""
    text = " ".join(error_text(error).split())
    return f"{type(error).__name__}: {text[:_MAX_SHOWN]}" if text else type(error).__name__
