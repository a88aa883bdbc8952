"""Encoding and decoding of bodies, headers and frames, by the compiled codecs."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar, overload

from kafka_actors.errors import DecodeError, EncodeError, UnsupportedVersionError

from .api import ApiKey
from .decoder import decoder
from .encoder import encoder, explain
from .messages.api_versions import ApiVersionsResponse
from .messages.headers import RequestHeader, ResponseHeader
from .schema import REQUESTS, RESPONSES, Message, Request, Response

_APIS = frozenset(ApiKey)
Kind = Literal["request", "response"]
Buffer = bytes | bytearray | memoryview
M = TypeVar("M", bound=Message)
Q = TypeVar("Q", bound=Request[Any])

_REFUSED = (struct.error, TypeError, ValueError, AttributeError, BufferError)
_SIZE = struct.Struct(">i")
_REQUEST_START = struct.Struct(">hhi")


def encode(message: Message, version: int) -> bytes:
    """Encodes the body of a message in a version.

    Raises EncodeError for a value that doesn't fit its field, or a field that is set but not in this version
    (unless Kafka's definitions call it ignorable), UnsupportedVersionError for a version the message lacks.
    """
    out = bytearray()
    encode_into(out, message, version)
    return bytes(out)


def encode_into(out: bytearray, message: Message, version: int) -> None:
    """Appends the body of a message to `out`; as `encode`. After an error `out` holds a part of it."""
    encode_body = encoder(type(message), version)
    try:
        encode_body(message, out)
    except _REFUSED as error:
        raise EncodeError(explain(message, version) or f"{type(message).__name__}: {error}") from error


def decode_message(cls: type[M], version: int, data: Buffer) -> M:
    """Decodes a message from all of `data`. Fields of type records are views of it, not copies.

    Raises DecodeError for bytes that don't fit the schema, left-over ones included.
    """
    message, rest = decode_prefix(cls, version, data)
    if len(rest):
        raise DecodeError(f"{cls.__name__} version {version}: {len(rest)} bytes left over")
    return message


def decode_prefix(cls: type[M], version: int, data: Buffer) -> tuple[M, memoryview]:
    """Decodes a message from the start of `data`; returns it with the bytes behind it."""
    decode_body = decoder(cls, version)
    view = memoryview(data)
    if view.format != "B":  # an Arrow buffer's bytes are signed
        view = view.cast("B")
    try:
        message, end = decode_body(view, 0, len(view))
    except DecodeError as error:
        raise DecodeError(f"version {version}: {error}") from error
    except (struct.error, IndexError) as error:
        raise DecodeError(f"{cls.__name__} version {version}: truncated after {len(view)} bytes") from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"{cls.__name__} version {version}: a string that is not UTF-8") from error
    return message, view[end:]


@overload
def decode(api: type[Request[Any]], version: int, kind: Literal["response"], data: Buffer) -> Response: ...
@overload
def decode(api: type[Q], version: int, kind: Literal["request"], data: Buffer) -> Q: ...
@overload
def decode(api: int, version: int, kind: Kind, data: Buffer) -> Message: ...
def decode(api: int | type[Request[Any]], version: int, kind: Kind, data: Buffer) -> Message:
    """Decodes the body of a request or response from all of `data`.

    `api` is Kafka's number of the API or a request class. Raises as `decode_message`, and
    UnsupportedVersionError for an API that is not known.
    """
    return decode_message(message_class(api, kind), version, data)


@cache
def message_class(api: int | type[Request[Any]], kind: Kind) -> type[Message]:
    """The class of an API's requests or responses."""
    if isinstance(api, type):
        return api if kind == "request" else api.response
    declared: Mapping[int, type[Message]] = REQUESTS if kind == "request" else RESPONSES
    if api not in declared:
        if api not in _APIS:
            raise UnsupportedVersionError(f"there is no API {api} here")
        importlib.import_module(f"kafka_actors.protocol.messages.{ApiKey(api).name.lower()}")
    return declared[api]


# ---------------------------------------------------------------- headers and frames


@cache
def header_version(api_key: int, version: int, kind: Kind) -> int:
    """The version of the header before a body, from whether the body is flexible (KIP-482)."""
    flexible_from = message_class(api_key, kind).flexible_from
    flexible = flexible_from is not None and version >= flexible_from
    if kind == "request":
        return 2 if flexible else 1
    # Always 0: the client can't know yet which version the broker answers with (KIP-511).
    return 1 if flexible and api_key != ApiKey.API_VERSIONS else 0


def encode_header(
    api_key: int, version: int, kind: Kind, correlation_id: int, client_id: str | None = None
) -> bytes:
    """Encodes the header of a request or response."""
    out = bytearray()
    _put_header(out, api_key, version, kind, correlation_id, client_id)
    return bytes(out)


def _put_header(
    out: bytearray, api_key: int, version: int, kind: Kind, correlation_id: int, client_id: str | None
) -> None:
    header: Message
    if kind == "request":
        header = RequestHeader(api_key, version, correlation_id, client_id)
    else:
        header = ResponseHeader(correlation_id)
    encode_into(out, header, header_version(api_key, version, kind))


@overload
def decode_header(
    api_key: int, version: int, kind: Literal["request"], data: Buffer
) -> tuple[RequestHeader, memoryview]: ...
@overload
def decode_header(
    api_key: int, version: int, kind: Literal["response"], data: Buffer
) -> tuple[ResponseHeader, memoryview]: ...
def decode_header(
    api_key: int, version: int, kind: Kind, data: Buffer
) -> tuple[RequestHeader | ResponseHeader, memoryview]:
    """Decodes the header at the start of a frame (without its size); returns it with the body behind it."""
    cls = RequestHeader if kind == "request" else ResponseHeader
    return decode_prefix(cls, header_version(api_key, version, kind), data)


def peek_request(data: Buffer) -> tuple[int, int, int]:
    """API key, version and correlation id of a request frame (without its size), which a server reads first."""
    try:
        api_key, version, correlation_id = _REQUEST_START.unpack_from(data)
    except struct.error as error:
        raise DecodeError(f"RequestHeader: truncated after {len(data)} bytes") from error
    return api_key, version, correlation_id


def frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Request[Any]
) -> bytes:
    """Encodes a request ready to send: size, header and body."""
    return _frame(api_key, version, "request", correlation_id, client_id, message)


def response_frame(api_key: int, version: int, correlation_id: int, message: Response) -> bytes:
    """Encodes a response ready to send, for a fake broker."""
    return _frame(api_key, version, "response", correlation_id, None, message)


def _frame(
    api_key: int, version: int, kind: Kind, correlation_id: int, client_id: str | None, message: Message
) -> bytes:
    if type(message) is not message_class(api_key, kind):
        raise EncodeError(f"{type(message).__name__} is no {kind} of API {api_key}")
    out = bytearray(4)
    _put_header(out, api_key, version, kind, correlation_id, client_id)
    encode_into(out, message, version)
    _SIZE.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def decode_api_versions(version: int, data: Buffer) -> ApiVersionsResponse:
    """Decodes the response to an ApiVersionsRequest of a version.

    A broker that doesn't know that version answers UNSUPPORTED_VERSION in version 0 (KIP-511). The bytes behind the
    error that librdkafka's mock brokers send fit no version: they are ignored.
    """
    if bytes(data[:2]) != _UNSUPPORTED_VERSION:
        return decode_message(ApiVersionsResponse, version, data)
    try:
        return decode_message(ApiVersionsResponse, 0, data)
    except DecodeError:
        return ApiVersionsResponse(error_code=UnsupportedVersionError.code)


_UNSUPPORTED_VERSION = struct.pack(">h", UnsupportedVersionError.code)
