"""Avro's schemas and values at random: `records` and `written` with all kinds of types, `topics` with logical types and their values as Python
has them."""

from __future__ import annotations

import datetime
import decimal
import io
import itertools

import fastavro
from hypothesis import strategies as st

UTC = datetime.UTC


def encoded(schema, row):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, row)
    return stream.getvalue()


PRIMITIVES = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=10),
}
primitives = st.sampled_from(sorted(PRIMITIVES))
_BRANCHES = ["null", *sorted({*PRIMITIVES} - {"bytes"})]
"""Without bytes: fastavro reads them by a reader's union with string as text."""


class Namer:
    """Numbers for the names of types, each used once."""

    def __init__(self):
        self.count = 0

    def __call__(self, kind):
        self.count += 1
        return f"{kind}{self.count}"


@st.composite
def types(draw, namer, depth=2):
    """A type as JSON has it."""
    kinds = ["primitive", "primitive", "enum", "fixed"]
    if depth:
        kinds += ["record", "array", "map", "nullable", "union"]
    match draw(st.sampled_from(kinds)):
        case "primitive":
            return draw(primitives)
        case "enum":
            symbols = draw(st.lists(st.sampled_from("ABCDEF"), min_size=1, max_size=4, unique=True))
            return {"type": "enum", "name": namer("Enum"), "symbols": symbols}
        case "fixed":
            return {"type": "fixed", "name": namer("Fixed"), "size": draw(st.integers(1, 5))}
        case "array":
            return {"type": "array", "items": draw(types(namer, depth - 1))}
        case "map":
            return {"type": "map", "values": draw(types(namer, depth - 1))}
        case "nullable":
            return draw(st.permutations(["null", draw(primitives)]))
        case "union":
            return draw(st.lists(st.sampled_from(_BRANCHES), min_size=2, max_size=4, unique=True))
        case _:
            return draw(records(namer, depth - 1))


@st.composite
def records(draw, namer, depth=2):
    kinds = draw(st.lists(types(namer, depth), max_size=4))
    fields = [{"name": f"f{n}", "type": kind} for n, kind in enumerate(kinds)]
    return {"type": "record", "name": namer("Record"), "fields": fields}


@st.composite
def written(draw, kind):
    """A value of a type, as fastavro takes it; a union's with its branch."""
    if isinstance(kind, list):
        branch = draw(st.sampled_from(kind))
        return None if branch == "null" else (branch, draw(written(branch)))
    if isinstance(kind, str):
        return None if kind == "null" else draw(PRIMITIVES[kind])
    match kind["type"]:
        case "enum":
            return draw(st.sampled_from(kind["symbols"]))
        case "fixed":
            return draw(st.binary(min_size=kind["size"], max_size=kind["size"]))
        case "array":
            return draw(st.lists(written(kind["items"]), max_size=3))
        case "map":
            return draw(st.dictionaries(st.text(max_size=3), written(kind["values"]), max_size=3))
        case _:
            return {field["name"]: draw(written(field["type"])) for field in kind["fields"]}


@st.composite
def changed(draw, kind, namer):
    """A reader's type that a writer's resolves to."""
    if kind in ("int", "long", "float", "string", "bytes") and draw(st.booleans()):
        wider = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"]}
        made = draw(st.sampled_from(wider.get(kind, [kind])))
        return ["null", made] if draw(st.booleans()) else made
    if isinstance(kind, dict) and kind["type"] == "record":
        kept = [f for f in kind["fields"] if draw(st.integers(0, 3))]
        fields = [{**f, "type": draw(changed(f["type"], namer))} for f in kept]
        for number in range(draw(st.integers(0, 2))):
            added = draw(primitives.filter("bytes".__ne__))  # fastavro gives a default of bytes as text
            default = {"boolean": True, "string": "né"}.get(added, 7)
            fields.append({"name": f"new{number}", "type": added, "default": default})
        return {**kind, "fields": draw(st.permutations(fields))}
    if isinstance(kind, dict) and kind["type"] in ("array", "map"):
        inside = "items" if kind["type"] == "array" else "values"
        return {**kind, inside: draw(changed(kind[inside], namer))}
    return kind


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
moments = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))  # noqa: DTZ001
in_milliseconds = moments.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000))


def logical(base, name):
    return {"type": base, "logicalType": name}


leaves = st.sampled_from(
    [
        ("boolean", st.booleans()),
        ("int", st.integers(-(2**31), 2**31 - 1)),
        ("long", st.integers(-(2**63), 2**63 - 1)),
        ("float", st.floats(width=32, allow_nan=False)),
        ("double", st.floats(allow_nan=False)),
        ("bytes", st.binary(max_size=4)),
        ("string", texts),
        (logical("int", "date"), st.dates()),
        (logical("long", "timestamp-millis"), in_milliseconds.map(lambda at: at.replace(tzinfo=UTC))),
        (logical("long", "timestamp-micros"), moments.map(lambda at: at.replace(tzinfo=UTC))),
        (logical("long", "local-timestamp-millis"), in_milliseconds),
        (logical("long", "local-timestamp-micros"), moments),
        (logical("long", "time-micros"), moments.map(lambda at: at.time())),
        (logical("string", "uuid"), st.uuids().map(str)),
        (
            {**logical("bytes", "decimal"), "precision": 9, "scale": 3},
            st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: decimal.Decimal(n).scaleb(-3)),
        ),
    ]
)


@st.composite
def unions(draw, inner):
    kind, values = draw(inner)
    return draw(st.sampled_from([["null", kind], [kind, "null"]])), st.none() | values


def arrays(inner):
    return inner.map(lambda of: ({"type": "array", "items": of[0]}, st.lists(of[1], max_size=3)))


def maps(inner):
    return inner.map(lambda of: ({"type": "map", "values": of[0]}, st.dictionaries(texts, of[1], max_size=3)))


_numbers = itertools.count()


@st.composite
def structs(draw, inner):
    fields = draw(st.dictionaries(st.sampled_from(["a", "b", "_c"]), inner, min_size=1))
    kind = {
        "type": "record",
        "name": f"R{next(_numbers)}",
        "fields": [{"name": name, "type": of} for name, (of, _) in fields.items()],
    }
    return kind, st.fixed_dictionaries({name: values for name, (_, values) in fields.items()})


def grown(inner):
    plain = arrays(inner) | maps(inner) | structs(inner)
    return plain | unions(plain)


_all_types = st.recursive(leaves | unions(leaves), grown, max_leaves=4)


@st.composite
def topics(draw):
    """A schema and records."""
    kind, values = draw(structs(_all_types))
    return kind, draw(st.lists(values, min_size=1, max_size=4))
