"""The choice of a kernel: compiled where it is, with one warning where it isn't."""

import sys
import warnings

import pytest

from kafka_actors.schemas import (
    _reference_avro,
    _reference_avro_encoder,
    _reference_protobuf_encoder,
    kernels,
    protobuf_runtime,
)


@pytest.mark.parametrize(
    ("choose", "module", "twin"),
    [
        (kernels.avro_kernel, "_avro_kernel", _reference_avro.ReferenceAvroMachine),
        (
            kernels.avro_writer_kernel,
            "_avro_encoder_kernel",
            _reference_avro_encoder.ReferenceAvroWriterMachine,
        ),
        (kernels.protobuf_kernel, "_protobuf_kernel", protobuf_runtime.RuntimeProtobufMachine),
        (
            kernels.protobuf_writer_kernel,
            "_protobuf_encoder_kernel",
            _reference_protobuf_encoder.ReferenceProtobufWriterMachine,
        ),
    ],
    ids=["avro", "avro-writing", "protobuf", "protobuf-writing"],
)
def test_without_the_compiled_kernel_the_twin_is_taken_with_a_warning(monkeypatch, choose, module, twin):
    assert choose()[0] == "cython", "these tests need the compiled kernels: make"
    choose.cache_clear()
    monkeypatch.setitem(sys.modules, f"kafka_actors.schemas.{module}", None)
    monkeypatch.delattr(f"kafka_actors.schemas.{module}")
    with pytest.warns(RuntimeWarning, match="runs without its compiled kernel"):
        assert choose() == ("python", twin)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choose()
    choose.cache_clear()
