"""Programs that write Protobuf messages from columns: a tree of steps, and its flat form, which the kernel and its twin carry out.

Each step writes one field, or one item of a field, with its tag in front, in the order of the fields' numbers, as Protobuf's runtime does. A
message that has a length in front is written before its length is known, and moved behind it.
"""

from __future__ import annotations

from array import array
from enum import IntEnum

from msgspec import Struct, field

from .avro_program import ordered


class WriteOp(IntEnum):
    """Kinds of steps."""

    VARINT = 0
    ZIGZAG = 1
    FIXED32 = 2
    FIXED64 = 3
    FLOAT = 4
    DOUBLE = 5
    BOOL = 6
    ENUM = 7
    BYTES = 8
    TEXT = 9
    TIMESTAMP = 10
    DURATION = 11
    MESSAGE = 12  # children: its fields; of a wrapper the value, from the same column
    GROUP = 13
    LIST = 14  # child: an item with its tag
    PACKED = 15  # child: an item without a tag
    MAP = 16  # children: key, value
    ONEOF = 17  # children: its members, which other steps write
    JSON = 18  # a Struct, Value or ListValue, in the form of `protobuf_json.payloads`


class Stored(IntEnum):
    """Form of a column's numbers."""

    AS_IT_IS = 0
    INT32 = 1
    INT64 = 2
    UINT64 = 3
    DECIMAL = 4  # of 128 bits
    FLOAT = 5
    DOUBLE = 6


class NumberRange(IntEnum):
    """Numbers that a field's type has."""

    INT32 = 0
    UINT32 = 1
    INT64 = 2
    UINT64 = 3


ALWAYS, NULLABLE, BARE = 1, 2, 4
"""Bits of a step's flags. ALWAYS: zeros are written, too. NULLABLE: nothing is written for a null. BARE: a message without tag and length."""
NO_SYMBOL = 1 << 40
"""Number of an enum's text that it doesn't have."""
LAST_SECOND = {
    WriteOp.TIMESTAMP: (-62_135_596_800, 253_402_300_799),
    WriteOp.DURATION: (-315_576_000_000, 315_576_000_000),
}


class WriteCode(IntEnum):
    """Why a row can't be written. The first two are those of the columns."""

    MEMORY = 1
    FULL = 2
    NO_VALUE = 30
    RANGE = 31
    LARGE = 32
    FLOAT_RANGE = 33
    SYMBOL = 34
    UTF8 = 35
    TIME = 36
    MEMBERS = 37
    JSON = 38


_TEXTS = {
    WriteCode.MEMORY: "there is no memory left",
    WriteCode.FULL: "the values have more than 2 GiB: write smaller batches",
    WriteCode.RANGE: "{number} is no {kind}",
    WriteCode.LARGE: "the number is no {kind}",
    WriteCode.FLOAT_RANGE: "a double is too large for a float",
    WriteCode.SYMBOL: "the value is none that the enum {kind} has",
    WriteCode.UTF8: "a string is not UTF-8",
    WriteCode.JSON: "the text is no JSON of a {kind}",
    WriteCode.TIME: "a time is out of the range of {kind}",
}


class WriteStep(Struct, eq=False):
    """One step. `size`: the `NumberRange` of a number, or the units of a time in a second; `kind`: the type's name, for failures; of ONEOF the
    names of its members."""

    op: WriteOp
    column: int = 0
    stored: Stored = Stored.AS_IT_IS
    size: int = 0
    flags: int = 0
    tag: bytes = b""
    children: list[WriteStep] = field(default_factory=list)
    path: str = ""
    kind: str = ""
    members: tuple[str, ...] = ()


WIDTH = 7


class WriteProgram(Struct, eq=False):
    """Steps in flat form. `steps` has `WIDTH` numbers for each: op, column, form of its numbers, size, flags, and the first and the number of
    its children; `tags` has the tag of each. The first step writes the row."""

    steps: array[int]
    children: array[int]
    tags: list[bytes]
    order: list[WriteStep]

    def reason(self, code: int, at: int, number: int) -> str:
        """Says why a row failed at a step; `number` is what was found there."""
        step = self.order[at]
        where = f"{step.path}: " if step.path else ""
        if code == WriteCode.MEMBERS:
            first, second = (step.members[one] for one in (number >> 32, number & 0xFFFFFFFF))
            return f"{where}{first} and {second} are both set, of which one may be"
        if code == WriteCode.NO_VALUE:
            lost = (
                ""
                if step.flags & ALWAYS
                else ", and without presence it would be read as 0 or empty: fill it before"
            )
            return f"{where}the value is null, which the schema doesn't allow{lost}"
        return where + _TEXTS[WriteCode(code)].format(number=number, kind=step.kind)


def flat(root: WriteStep) -> WriteProgram:
    """The flat form of a tree of steps, in which a step that is reached twice stands once."""
    order, numbers = ordered(root)
    steps, children = array("q"), array("q")
    for step in order:
        steps.extend(
            (step.op, step.column, step.stored, step.size, step.flags, len(children), len(step.children))
        )
        children.extend(numbers[id(child)] for child in step.children)
    return WriteProgram(steps, children, [step.tag for step in order], order)
