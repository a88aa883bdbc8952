"""Records in files and pipes: what `consume` writes and `produce` reads, as text, an Arrow IPC stream or Parquet."""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from kafka_actors.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from .output import Output

__all__ = [
    "STDIO",
    "Render",
    "Write",
    "arrow_batches",
    "check_reader",
    "is_pipe",
    "opened_for_reading",
    "record_writer",
]

OF_DISKS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a disk that is full or broken, and of a file that is too large for it."""
STDIO = "-"
"""Name of stdin and of stdout in the place of a file's."""
ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Bytes of records in memory, above which they become a row group of a Parquet file."""
BATCH_ROWS = 65_536
"""Most rows of a batch that is read from Parquet."""

Write: TypeAlias = Callable[["pa.RecordBatch"], object]
Render: TypeAlias = Callable[["pa.RecordBatch"], bytes]


def _opened(file: str, mode: str) -> IO[Any]:
    try:
        return open(file, mode)
    except OSError as error:
        raise UsageError(f"FILE {file}: {error.strerror}") from None


# ------------------------------------------------------------ writing


def _opened_for_writing(output: Output, form: str, file: str) -> AbstractContextManager[IO[bytes]]:
    if file != STDIO:
        return _opened(file, "wb")
    stdout: Any = output.console.file
    if form in ("arrow", "parquet") and stdout.isatty():
        raise UsageError(f"--output {form}: is not for a terminal: give a FILE")
    return nullcontext(stdout.buffer)


def check_reader(stream: IO[Any]) -> None:
    """Raises `BrokenPipeError` for a pipe that nobody reads any more. Writing would, too, but while there are no records nothing
    is written."""
    try:
        poller = select.poll()
        poller.register(stream.fileno(), 0)
    except (AttributeError, OSError):  # no such call here, or no file behind the stream
        return
    if any(state & select.POLLERR for _, state in poller.poll(0)):
        raise BrokenPipeError


@contextmanager
def _naming(output: Output, file: str) -> Iterator[None]:
    """Context manager that lets errors of a full or broken disk through with the name of the file. What stdout could not take is not
    tried again when the process ends."""
    try:
        yield
    except OSError as error:
        if error.errno in OF_DISKS and error.filename is None:
            error.filename = file
            if file == STDIO:
                error.filename = "stdout"
                output.discard()
        raise


@contextmanager
def record_writer(output: Output, form: str, file: str, render: Render | None) -> Iterator[Write]:
    """Context manager that opens FILE or stdout, and yields a function that writes a batch in one of the forms of records.

    Raises `UsageError` for a file that can't be opened, and for bytes to a terminal; `OSError` with the file's name for a full disk."""
    from kafka_actors.base.batches import SCHEMA

    with _naming(output, file), _opened_for_writing(output, form, file) as stream:
        if form == "parquet":
            groups = _RowGroups(stream, SCHEMA)
            try:
                yield groups.add
            finally:
                groups.close()
        elif form == "arrow":
            import pyarrow as pa

            with pa.ipc.new_stream(stream, SCHEMA) as writer:

                def write_arrow(batch: pa.RecordBatch) -> None:
                    writer.write_batch(batch)
                    stream.flush()

                yield write_arrow
        else:
            assert render is not None  # after _renderer()

            def write_text(batch: pa.RecordBatch) -> None:
                stream.write(render(batch))
                stream.flush()

            yield write_text


class _RowGroups:
    """A Parquet file that is written by large row groups. Closed, it is complete."""

    def __init__(self, stream: IO[bytes], schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(stream, schema, compression="zstd")
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa

        batches, self._batches, self._bytes = self._batches, [], 0
        if batches:
            self._writer.write_table(pa.Table.from_batches(batches))

    def close(self) -> None:
        try:
            self._write()
        finally:
            self._writer.close()


# ------------------------------------------------------------ reading


def is_pipe(file: str) -> bool:
    """Whether a file is a named pipe, or one of the shell's: `<(command)`."""
    try:
        return stat.S_ISFIFO(os.stat(file).st_mode)
    except OSError:  # opening it says what is wrong
        return False


def opened_for_reading(form: str, file: str) -> AbstractContextManager[IO[bytes]]:
    """Opens a file, or stdin. Raises `UsageError` for a file that can't be opened, and for Parquet from stdin."""
    if file != STDIO:
        return _opened(file, "rb")
    if form == "parquet":
        raise UsageError("--input parquet: can't be read from stdin: give a FILE")
    return nullcontext(sys.stdin.buffer)


def arrow_batches(form: str, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
    """Batches of Parquet, or of Arrow's IPC formats: the stream, and the file, which begins with its name.

    Raises what pyarrow raises, and `TypeError` for columns that can't be sent."""
    import pyarrow as pa

    batches: Iterator[pa.RecordBatch]
    if form == "parquet":
        import pyarrow.parquet as pq

        parquet = pq.ParquetFile(stream)
        schema, batches = parquet.schema_arrow, parquet.iter_batches(BATCH_ROWS)
    elif stream.seekable() and stream.peek(6)[:6] == b"ARROW1":  # type: ignore[attr-defined]  # of a buffered reader
        file = pa.ipc.open_file(stream)
        schema, batches = file.schema, (file.get_batch(i) for i in range(file.num_record_batches))
    else:
        reader = pa.ipc.open_stream(stream)
        schema, batches = reader.schema, iter(reader)
    _check(schema)
    return batches


def _check(schema: pa.Schema) -> None:
    """Raises `TypeError` for columns that can't be sent, of whatever records."""
    import pyarrow as pa

    from kafka_actors.producer.routing import check_columns
    from kafka_actors.records.encode import row_columns

    try:
        check_columns(schema)
    except UsageError as error:
        raise TypeError(str(error).removeprefix("send_batch: ")) from None
    row_columns(pa.RecordBatch.from_pylist([], schema=schema), 0)
