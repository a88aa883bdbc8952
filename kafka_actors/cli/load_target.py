"""Loads the job or pipeline that `path/to/file.py:name` or `module:name` on the command line names."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kafka_actors.base.callables import misfit
from kafka_actors.errors import ConfigError, KafkaActorsError, UsageError, kind_of

from .command import LoadError, needs

if TYPE_CHECKING:
    from kafka_actors.pipeline import Pipeline
    from kafka_actors.ray import Job, OnRay
    from kafka_actors.spark import OnSpark

__all__ = ["LoadedTarget", "load_target"]

Engine = Literal["ray", "spark"]


class LoadedTarget(NamedTuple):
    """Job or pipeline that a target names, and the engine that runs it."""

    name: str
    found: Job | Pipeline | OnRay | OnSpark
    engine: Engine


def load_target(target: str, engine: Engine | None = None) -> LoadedTarget:
    """Loads what `target` names: a `Job`, a `Pipeline`, an `OnRay` or an `OnSpark`, or a function without arguments that returns
    one. `engine`: the one that was asked for; a `Pipeline` runs on Ray unless it is "spark".

    Raises `UsageError` where the target names none of these, or where Ray or PySpark is missing, `LoadError` for an error of
    the user's code, `ConfigError` for the wrong engine, and errors of the definition as they are.
    """
    from kafka_actors.pipeline import Pipeline
    from kafka_actors.pipeline.bound_pipeline import BoundPipeline
    from kafka_actors.ray import Job

    where, colon, name = target.rpartition(":")
    if not colon or not where or not name:
        raise UsageError(
            f"{target!r} is not the name of a job or pipeline: give path/to/file.py:name or module:name"
        )
    module = _module(where)
    found = _attribute(module, name, target)
    accepted = (Job, Pipeline, BoundPipeline)
    if not isinstance(found, accepted) and callable(found):
        found = _called(found, target)
    if not isinstance(found, accepted):
        raise UsageError(
            f"{target} is {kind_of(found)}: accepts a Job, a Pipeline, an OnRay or an OnSpark, or a function that returns one"
        )
    own: Engine | None = "ray" if isinstance(found, Job) else getattr(found, "engine", None)
    runs_on = _engine_of(found, own, engine, target)
    if _is_file(where):
        _send_by_value(module, runs_on)
    return LoadedTarget(target, found, runs_on)  # type: ignore[arg-type]  # the engines' subclasses of BoundPipeline


def _engine_of(found: Any, own: Engine | None, wanted: Engine | None, target: str) -> Engine:
    """Engine that runs an object. `own`: the one that it is bound to; a `Pipeline` has none, and leaves the choice."""
    if own is not None and wanted not in (None, own):
        raise ConfigError(
            "engine",
            f"is {wanted!r}, and {target} is {kind_of(found)}, which runs on {own.capitalize()}: give a Pipeline",
        )
    runs_on = own or wanted or "ray"
    if runs_on == "ray":
        needs("ray", "ray", "a job runs on Ray, which is not installed")
    else:
        needs("pyspark", "spark", "the engine 'spark' is PySpark, which is not installed")
    return runs_on


# ---------------------------------------------------------------- modules


def _is_file(where: str) -> bool:
    return where.endswith(".py") or os.sep in where


def _module(where: str) -> ModuleType:
    if _is_file(where):
        return _from_file(where)
    _importable(Path.cwd())
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and (where + ".").startswith(error.name + "."):
            raise UsageError(
                f"no module named {error.name!r} (for a file, give path/to/file.py:name)"
            ) from None
        raise _load_error(where, error) from error
    except KafkaActorsError:
        raise
    except (Exception, SystemExit) as error:
        raise _load_error(where, error) from error


def _from_file(where: str) -> ModuleType:
    path = Path(where).resolve()
    if not path.is_file():
        raise UsageError(f"there is no file {where}")
    _importable(path.parent)
    name = _free_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{where} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except KafkaActorsError:
        raise
    except (Exception, SystemExit) as error:
        raise _load_error(where, error) from error
    return module


def _free_name(path: Path) -> str:
    """Name for a module of this file: the file's own, unless a module of this name exists elsewhere."""
    name = path.stem
    try:
        known = sys.modules.get(name) or importlib.util.find_spec(name)
    except (ImportError, ValueError):
        known = None
    origin = getattr(known, "__file__", None) or getattr(known, "origin", None)
    return name if known is None or origin == str(path) else f"{name}_job_file"


def _send_by_value(module: ModuleType, engine: Engine) -> None:
    """Has workers get the functions and classes of this file by value: on their node the file may not exist."""
    cloudpickle = importlib.import_module("ray.cloudpickle" if engine == "ray" else "pyspark.cloudpickle")
    cloudpickle.register_pickle_by_value(module)


def _importable(directory: Path) -> None:
    """Makes the files beside the target importable, here and in the workers of a local Ray."""
    here = str(directory)
    if here not in sys.path:
        sys.path.insert(0, here)
    known = os.environ.get("PYTHONPATH", "")
    if here not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(part for part in (here, known) if part)


# ---------------------------------------------------------------- objects


def _attribute(module: ModuleType, name: str, target: str) -> Any:
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UsageError(f"{target}: {module.__name__} has no {name!r}") from None
    return found


def _called(function: Any, target: str) -> Any:
    if (wrong := misfit(function)) is not None:
        raise UsageError(
            f"{target}() can't be called: {wrong.reason}; it has to be a function without arguments"
        )
    try:
        return function()
    except KafkaActorsError:
        raise
    except (Exception, SystemExit) as error:
        raise _load_error(f"{target}()", error) from error


def _load_error(what: str, error: BaseException) -> LoadError:
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno))
    # The frames of Python's import machinery have no file.
    places = [place for place in places if not place[0].startswith("<frozen ")]
    at = f" ({Path(places[-1][0]).name}, line {places[-1][1]})" if places else ""
    return LoadError(f"{what} could not be loaded{at}")
