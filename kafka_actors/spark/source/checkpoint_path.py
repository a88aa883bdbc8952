"""Where a checkpoint is: as Spark understands its name, and as pyarrow does."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from kafka_actors.errors import ConfigError

_HADOOPS = {"s3a": "s3", "s3n": "s3"}


class CheckpointPath(NamedTuple):
    """Objects of Spark's JVM, and the checkpoint's whole URI."""

    path: Any
    system: Any
    configuration: Any
    uri: str

    @property
    def location(self) -> str:
        """For pyarrow: a path of this machine, or a URI."""
        parts = urlsplit(self.uri)
        if parts.scheme == "file":
            return unquote(parts.path)
        return parts._replace(scheme=_HADOOPS.get(parts.scheme, parts.scheme)).geturl()


def checkpoint_of(spark: Any, checkpoint: str) -> CheckpointPath | None:
    """Without a scheme it is on Spark's default file system. None over Spark Connect, where nobody here knows that.

    Raises `ConfigError` for one that can't be reached from here.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return None
    try:
        path = jvm.org.apache.hadoop.fs.Path(checkpoint)
        configuration = spark._jsc.hadoopConfiguration()
        system = path.getFileSystem(configuration)
        return CheckpointPath(path, system, configuration, system.makeQualified(path).toUri().toString())
    except Exception as error:  # Py4JJavaError: whatever the file system's own code raises
        raise ConfigError(
            "checkpoint", f"is {checkpoint!r}: Spark can't reach it: {reason_of(error)}"
        ) from None


def reason_of(error: BaseException) -> str:
    """The first line of what Java raised."""
    raised = getattr(error, "java_exception", None)
    return str(raised.toString() if raised is not None else error).partition("\n")[0]
