"""Loads the `Job` that `path/to/file.py:name` or `module:name` on the command line names."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kafka_actors.base.callables import misfit
from kafka_actors.errors import KafkaActorsError, UsageError, kind_of

from .command import LoadError

if TYPE_CHECKING:
    from kafka_actors.ray import Job

__all__ = ["load_job"]


def load_job(target: str) -> Job:
    """Loads what `target` names: a `Job`, or a function without arguments that returns one.

    Raises `UsageError` where the target names neither, `LoadError` for an error of the user's code, and errors of the
    job's definition (`ConfigError`) as they are.
    """
    from kafka_actors.ray import Job

    where, colon, name = target.rpartition(":")
    if not colon or not where or not name:
        raise UsageError(f"{target!r} is not the name of a job: give path/to/file.py:name or module:name")
    found = _attribute(_module(where), name, target)
    if not isinstance(found, Job) and callable(found):
        found = _called(found, target)
    if not isinstance(found, Job):
        raise UsageError(f"{target} is {kind_of(found)}, not a Job or a function that returns one")
    return found


# ---------------------------------------------------------------- modules


def _module(where: str) -> ModuleType:
    if where.endswith(".py") or os.sep in where:
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
    _send_by_value(module)
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


def _send_by_value(module: ModuleType) -> None:
    """Has workers get the functions and classes of this file by value: on their node the file may not exist."""
    try:
        from ray import cloudpickle
    except ImportError:
        return  # the start of the job says that Ray is missing
    cloudpickle.register_pickle_by_value(module)


def _importable(directory: Path) -> None:
    """Makes the files beside the job importable, here and in the workers of a local Ray."""
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
