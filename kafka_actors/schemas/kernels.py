"""Choice between the compiled kernels and their twins: once for each format, when its first decoder or encoder is made."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Literal

from .avro_program import AvroMachine, Program
from .protobuf_json import with_texts
from .protobuf_plan import Plan, ProtobufMachine
from .protobuf_program import WriteProgram
from .written_columns import WriterMachine

KernelName = Literal["cython", "python"]


@cache
def avro_kernel() -> tuple[KernelName, Callable[[Program], AvroMachine]]:
    """The kernel's name and the class of its machines: compiled, or in plain Python."""
    try:
        from . import _avro_kernel
    except ImportError as error:
        from ._reference_avro import ReferenceAvroMachine

        _warn("Avro", "plain Python decodes it", error)
        return "python", ReferenceAvroMachine
    return "cython", _avro_kernel.Machine


@cache
def avro_writer_kernel() -> tuple[KernelName, Callable[[Program], WriterMachine]]:
    """The name of the kernel that writes and the class of its machines: compiled, or in plain Python."""
    try:
        from . import _avro_encoder_kernel
    except ImportError as error:
        from ._reference_avro_encoder import ReferenceAvroWriterMachine

        _warn("Avro", "plain Python encodes it", error)
        return "python", ReferenceAvroWriterMachine
    return "cython", _avro_encoder_kernel.Machine


@cache
def protobuf_kernel() -> tuple[KernelName, Callable[[Plan], ProtobufMachine]]:
    """The kernel's name and the function that makes its machines: compiled, or by Protobuf's own runtime."""
    try:
        from . import _protobuf_kernel
    except ImportError as error:
        from .protobuf_runtime import RuntimeProtobufMachine

        _warn("Protobuf", "its own runtime decodes it, an object for each value", error)
        return "python", RuntimeProtobufMachine
    return "cython", with_texts(_protobuf_kernel.Machine)


@cache
def protobuf_writer_kernel() -> tuple[KernelName, Callable[[WriteProgram], WriterMachine]]:
    """The name of the kernel that writes and the class of its machines: compiled, or in plain Python."""
    try:
        from . import _protobuf_encoder_kernel
    except ImportError as error:
        from ._reference_protobuf_encoder import ReferenceProtobufWriterMachine

        _warn("Protobuf", "plain Python encodes it", error)
        return "python", ReferenceProtobufWriterMachine
    return "cython", _protobuf_encoder_kernel.Machine


def _warn(what: str, otherwise: str, error: ImportError) -> None:
    warnings.warn(
        f"kafka-actors runs without its compiled kernel of {what} ({error}); {otherwise}, which is correct but many times "
        "slower. Install a wheel, or a C compiler and reinstall.",
        RuntimeWarning,
        stacklevel=3,
    )
