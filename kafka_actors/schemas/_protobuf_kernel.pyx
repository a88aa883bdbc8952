# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The Protobuf kernel: carries out a plan on encoded messages, without the GIL and without an object for each value.

`protobuf_runtime.py` is its twin, by Protobuf's own runtime. Every length is checked before it is used.
"""

from os import urandom

include "_columns.pxi"

cdef enum:
    W_VARINT = 0
    W_ZIGZAG = 1
    W_UNSIGNED = 2
    W_BOOL = 3
    W_ENUM = 4
    W_FIXED32 = 5
    W_FIXED64 = 6
    W_UFIXED32 = 7
    W_UFIXED64 = 8
    W_FLOAT = 9
    W_DOUBLE = 10
    W_BYTES = 11
    W_TEXT = 12
    W_MESSAGE = 13
    W_GROUP = 14
    W_TIMESTAMP = 15
    W_DURATION = 16
    W_WRAPPER = 17
    W_JSON = 18

cdef enum:
    JSON_STRUCT = 0      # `inner` of a field of JSON: see `protobuf_plan`
    JSON_VALUE = 1
    JSON_LIST = 2
    JSON_ENTRY = 3       # of a Struct

cdef enum:
    SINGULAR = 0
    LIST = 1
    MAP = 2

cdef enum:
    NULLABLE = 1
    REQUIRED = 2
    CLOSED = 4
    GROUPED = 8
    UNCHECKED = 16

cdef enum:
    ERR_SHORT = 10
    ERR_VARINT = 11
    ERR_TAG = 12
    ERR_GROUP = 13
    ERR_UTF8 = 14
    ERR_REQUIRED = 15
    ERR_RANGE = 16

cdef enum:
    TABLE = 128          # numbers of fields that are found at once
    GROUPS = 100         # groups within each other

cdef uint64_t SEED = <uint64_t> int.from_bytes(urandom(8), "little")   # of hashes, which no producer can know
cdef int64_t MICROS = 1000000
cdef int64_t FIRST_SECOND = -62135596800   # of Timestamp: 0001-01-01
cdef int64_t LAST_SECOND = 253402300799
cdef int64_t LONGEST = 315576000000        # seconds of Duration

cdef struct Field:
    int number
    int wire
    int shape
    int flags
    int column
    int oneof
    int inner
    int symbols
    int default

cdef struct Slot:
    # Occurrences of a field in the present message.
    const uint8_t *first     # tag of the first one
    const uint8_t *after     # behind the last one
    const uint8_t *last      # payload of the last one
    int64_t n                # bytes of it
    int64_t count

cdef struct Message:
    int first
    int count
    short table[TABLE]       # field by number, -1 for none

cdef struct Symbol:
    int64_t number
    const uint8_t *p
    int64_t n

cdef struct Symbols:
    int first
    int count

cdef struct Text:
    const uint8_t *p
    int64_t n

cdef struct Reading:
    Message *messages
    Field *fields
    Slot *slots
    Symbols *enums
    Symbol *symbols
    Text *defaults
    int by_name              # enums are columns of names
    Column *nodes
    int *kids
    int at                   # the field that failed

cdef struct Tag:
    int number
    int wire
    const uint8_t *p         # payload
    int64_t n
    const uint8_t *after

cdef struct Entry:
    # Entry of a map, and its key.
    const uint8_t *p
    int64_t n
    const uint8_t *key
    int64_t size
    uint64_t number
    int replaced


cdef inline int read_varint(const uint8_t **at, const uint8_t *end, uint64_t *out) noexcept nogil:
    cdef const uint8_t *p = at[0]
    cdef uint64_t value = 0, byte
    cdef int shift = 0
    while True:
        if p == end:
            return ERR_SHORT
        byte = p[0]
        p += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift == 70:
            return ERR_VARINT
    at[0] = p
    out[0] = value
    return 0


cdef int read_tag(const uint8_t *p, const uint8_t *end, Tag *tag, int depth) noexcept nogil:
    # Reads a tag and finds its payload, which isn't empty for a group only if that has fields.
    cdef uint64_t value, size
    cdef Tag inner
    cdef int err = read_varint(&p, end, &value)
    if err:
        return err
    if value >> 32 or value >> 3 == 0:
        return ERR_TAG
    tag.number = <int> (value >> 3)
    tag.wire = <int> (value & 7)
    tag.p = p
    if tag.wire == 0:
        err = read_varint(&p, end, &value)
        if err:
            return err
        tag.n = p - tag.p
        tag.after = p
    elif tag.wire == 2:
        err = read_varint(&p, end, &size)
        if err:
            return err
        if size > <uint64_t> (end - p):
            return ERR_SHORT
        tag.p = p
        tag.n = <int64_t> size
        tag.after = p + size
    elif tag.wire == 1 or tag.wire == 5:
        tag.n = 8 if tag.wire == 1 else 4
        if end - p < tag.n:
            return ERR_SHORT
        tag.after = p + tag.n
    elif tag.wire == 3:
        if depth >= GROUPS:
            return ERR_GROUP
        while True:
            if p == end:
                return ERR_SHORT
            err = read_tag(p, end, &inner, depth + 1)
            if err:
                return err
            if inner.wire == 4:
                if inner.number != tag.number:
                    return ERR_GROUP
                tag.n = p - tag.p
                tag.after = inner.after
                break
            p = inner.after
    elif tag.wire == 4:
        tag.n = 0
        tag.after = p
        if depth == 0:
            return ERR_GROUP
    else:
        return ERR_TAG
    return 0


cdef inline int wire_of(int wire) noexcept nogil:
    # The wire type on which values of a field come.
    if wire <= W_ENUM:
        return 0
    if wire == W_FIXED64 or wire == W_UFIXED64 or wire == W_DOUBLE:
        return 1
    if wire == W_FIXED32 or wire == W_UFIXED32 or wire == W_FLOAT:
        return 5
    return 2


cdef inline int fits(const Field *f, int wire) noexcept nogil:
    # Whether a tag's wire type is one of the field's.
    if f.wire >= W_MESSAGE:
        return wire == (3 if f.flags & GROUPED else 2)
    return wire == wire_of(f.wire) or (wire == 2 and f.shape == LIST and f.wire < W_BYTES)


cdef inline int find(Reading *r, const Message *m, int number) noexcept nogil:
    cdef int k
    if number < TABLE:
        return m.table[number]
    for k in range(m.count):
        if r.fields[m.first + k].number == number:
            return k
    return -1


cdef const Symbol *symbol_of(Reading *r, int enum_, int64_t number) noexcept nogil:
    cdef int low = r.enums[enum_].first, high = low + r.enums[enum_].count, middle
    while low < high:
        middle = (low + high) >> 1
        if r.symbols[middle].number < number:
            low = middle + 1
        else:
            high = middle
    if low < r.enums[enum_].first + r.enums[enum_].count and r.symbols[low].number == number:
        return &r.symbols[low]
    return NULL


cdef inline int is_unknown(Reading *r, const Field *f, const uint8_t *p, const uint8_t *end) noexcept nogil:
    # Whether a number of a closed enum is none of it.
    cdef uint64_t value = 0
    if not f.flags & CLOSED:
        return 0
    read_varint(&p, end, &value)
    return symbol_of(r, f.symbols, <int32_t> value) == NULL


cdef int check_replaced(Reading *r, int field) noexcept nogil:
    # Whether what a field has could be read, though another one of its oneof comes later: the runtimes read each value that is there.
    cdef const Field *f = &r.fields[field]
    cdef const Slot *slot = &r.slots[field]
    cdef const uint8_t *p = slot.first
    cdef Tag tag
    cdef int err
    if slot.count == 0:
        return 0
    while p != slot.after:
        err = read_tag(p, slot.after, &tag, 0)
        if not err and tag.number == f.number and fits(f, tag.wire):
            err = check_value(r, f, tag.p, tag.n)
        if err:
            r.at = field
            return err
        p = tag.after
    return 0


cdef int check_value(Reading *r, const Field *f, const uint8_t *p, int64_t n) noexcept nogil:
    if f.wire == W_TEXT:
        return 0 if f.flags & UNCHECKED or utf8_valid(p, n) else ERR_UTF8
    if f.wire == W_MESSAGE or f.wire == W_GROUP:
        return check_message(r, f.inner, p, p + n)
    if f.wire == W_WRAPPER or f.wire == W_TIMESTAMP or f.wire == W_DURATION:
        return check(p, p + n)
    return check_json(f.inner, p, p + n, 0) if f.wire == W_JSON else 0


cdef int check_json(int kind, const uint8_t *p, const uint8_t *end, int depth) noexcept nogil:
    # Whether a Struct, Value or ListValue could be read, or an entry of a Struct.
    cdef Tag tag
    cdef int err, inner
    if depth >= GROUPS:
        return ERR_GROUP
    while p != end:
        err = read_tag(p, end, &tag, 0)
        if err:
            return err
        inner = -1
        if tag.wire == 2:
            if kind == JSON_STRUCT and tag.number == 1:
                inner = JSON_ENTRY
            elif (kind == JSON_ENTRY and tag.number == 2) or (kind == JSON_LIST and tag.number == 1):
                inner = JSON_VALUE
            elif kind == JSON_VALUE and tag.number == 5:
                inner = JSON_STRUCT
            elif kind == JSON_VALUE and tag.number == 6:
                inner = JSON_LIST
            elif (kind == JSON_ENTRY and tag.number == 1) or (kind == JSON_VALUE and tag.number == 3):
                err = 0 if utf8_valid(tag.p, tag.n) else ERR_UTF8
        if inner >= 0:
            err = check_json(inner, tag.p, tag.p + tag.n, depth + 1)
        if err:
            return err
        p = tag.after
    return 0


cdef int check_message(Reading *r, int number, const uint8_t *p, const uint8_t *end) noexcept nogil:
    # Whether a message could be read that counts no more.
    cdef const Message *m = &r.messages[number]
    cdef Tag tag
    cdef int err, k
    while p != end:
        err = read_tag(p, end, &tag, 0)
        if err:
            return err
        k = find(r, m, tag.number)
        if k >= 0 and fits(&r.fields[m.first + k], tag.wire):
            err = check_value(r, &r.fields[m.first + k], tag.p, tag.n)
            if err:
                return err
        p = tag.after
    return 0


cdef int scan(Reading *r, const Message *m, const uint8_t *p, const uint8_t *end) noexcept nogil:
    # Notes where the fields of a message are.
    cdef Tag tag
    cdef int err, k, j
    cdef Field *f
    cdef Slot *slot
    for k in range(m.count):
        r.slots[m.first + k].count = 0
    while p != end:
        err = read_tag(p, end, &tag, 0)
        if err:
            r.at = -1
            return err
        k = find(r, m, tag.number)
        if k >= 0:
            f = &r.fields[m.first + k]
            slot = &r.slots[m.first + k]
            if fits(f, tag.wire) and not (f.shape == SINGULAR and is_unknown(r, f, tag.p, tag.after)):
                if f.oneof >= 0:
                    for j in range(m.count):
                        if j != k and r.fields[m.first + j].oneof == f.oneof:
                            err = check_replaced(r, m.first + j)
                            if err:
                                return err
                            r.slots[m.first + j].count = 0
                if slot.count == 0:
                    slot.first = p
                elif f.wire == W_TEXT and f.shape == SINGULAR:
                    err = check_value(r, f, slot.last, slot.n)
                    if err:
                        r.at = m.first + k
                        return err
                slot.count += 1
                slot.last = tag.p
                slot.n = tag.n
                slot.after = tag.after
        p = tag.after
    return 0


cdef int put_number_name(Column *c, int64_t number) noexcept nogil:
    # The text of a number that an open enum has no name for.
    cdef uint8_t text[24]
    cdef int at = 24
    cdef uint64_t left = <uint64_t> (-number) if number < 0 else <uint64_t> number
    while True:
        at -= 1
        text[at] = <uint8_t> (48 + left % 10)
        left //= 10
        if left == 0:
            break
    if number < 0:
        at -= 1
        text[at] = 45
    return put_binary(c, text + at, 24 - at)


cdef int put_unsigned(Column *c, uint64_t value) noexcept nogil:
    # As int64 for 32 bits, as a decimal for 64.
    cdef uint64_t wide[2]
    if c.width == 8:
        return put_i64(c, <int64_t> value)
    wide[0] = value
    wide[1] = 0
    return put_fixed(c, <const uint8_t *> wide)


cdef int put_varint(Reading *r, const Field *f, Column *c, int wire, uint64_t value) noexcept nogil:
    cdef const Symbol *symbol
    if wire == W_VARINT:
        return put_i32(c, <int32_t> value) if c.width == 4 else put_i64(c, <int64_t> value)
    if wire == W_UNSIGNED:
        return put_unsigned(c, value if c.width == 16 else value & 0xFFFFFFFFU)
    if wire == W_BOOL:
        return put_bool(c, value != 0)
    if wire == W_ENUM:
        if not r.by_name:
            return put_i32(c, <int32_t> value)
        symbol = symbol_of(r, f.symbols, <int32_t> value)
        if symbol == NULL:
            return put_number_name(c, <int32_t> value)
        return put_binary(c, symbol.p, symbol.n)
    if c.width == 4:
        value &= 0xFFFFFFFFU
    value = (value >> 1) ^ (<uint64_t> 0 - (value & 1))
    return put_i32(c, <int32_t> value) if c.width == 4 else put_i64(c, <int64_t> value)


cdef int put_value(Reading *r, const Field *f, int column, int wire, const uint8_t *p, int64_t n) noexcept nogil:
    # One value, of which `n` bytes are there.
    cdef Column *c = &r.nodes[column]
    cdef uint64_t value = 0
    cdef uint32_t half
    cdef float single
    cdef double double_
    cdef int err
    if wire <= W_ENUM:
        err = read_varint(&p, p + n, &value)
        return err if err else put_varint(r, f, c, wire, value)
    if wire == W_TEXT:
        return put_binary(c, p, n) if utf8_valid(p, n) else ERR_UTF8
    if wire == W_BYTES or wire == W_JSON:
        return put_binary(c, p, n)
    if wire == W_DOUBLE:
        memcpy(&double_, p, 8)
        return put_f64(c, double_)
    if wire == W_FLOAT:
        memcpy(&single, p, 4)
        return put_f32(c, single)
    if wire == W_FIXED64 or wire == W_UFIXED64:
        memcpy(&value, p, 8)
        return put_unsigned(c, value) if wire == W_UFIXED64 else put_i64(c, <int64_t> value)
    if wire == W_FIXED32 or wire == W_UFIXED32:
        memcpy(&half, p, 4)
        return put_i64(c, half) if wire == W_UFIXED32 else put_i32(c, <int32_t> half)
    if wire == W_WRAPPER:
        return put_wrapped(r, f, column, p, p + n)
    if wire == W_TIMESTAMP or wire == W_DURATION:
        return put_time(c, wire, p, p + n)
    err = run(r, f.inner, p, p + n)
    return err if err else close_struct(c)


cdef int put_wrapped(Reading *r, const Field *f, int column, const uint8_t *p, const uint8_t *end) noexcept nogil:
    # The value of a wrapper, whose field has number 1.
    cdef Tag tag
    cdef int err, wire = f.inner
    cdef const uint8_t *found = NULL
    cdef int64_t n = 0
    while p != end:
        err = read_tag(p, end, &tag, 0)
        if err:
            return err
        if tag.number == 1 and tag.wire == wire_of(wire):
            found, n = tag.p, tag.n
            if wire == W_TEXT and not utf8_valid(found, n):
                return ERR_UTF8
        p = tag.after
    if found == NULL:
        return put_zero(&r.nodes[column])
    return put_value(r, f, column, wire, found, n)


cdef int put_time(Column *c, int wire, const uint8_t *p, const uint8_t *end) noexcept nogil:
    # Seconds and nanoseconds, fields 1 and 2, as microseconds.
    cdef Tag tag
    cdef int err
    cdef uint64_t value
    cdef int64_t seconds = 0, nanos = 0
    while p != end:
        err = read_tag(p, end, &tag, 0)
        if err:
            return err
        if tag.wire == 0 and tag.number <= 2:
            err = read_varint(&tag.p, tag.after, &value)
            if err:
                return err
            if tag.number == 1:
                seconds = <int64_t> value
            else:
                nanos = <int32_t> value
        p = tag.after
    if wire == W_TIMESTAMP:
        if seconds < FIRST_SECOND or seconds > LAST_SECOND or nanos < 0 or nanos > 999999999:
            return ERR_RANGE
        return put_i64(c, seconds * MICROS + nanos // 1000)
    if seconds < -LONGEST or seconds > LONGEST or nanos < -999999999 or nanos > 999999999:
        return ERR_RANGE
    if (seconds < 0 and nanos > 0) or (seconds > 0 and nanos < 0):
        return ERR_RANGE
    return put_i64(c, seconds * MICROS + nanos // 1000)


cdef int put_zero(Column *c) noexcept nogil:
    cdef int err
    if c.kind == COL_BINARY:
        return put_binary(c, NULL, 0)
    err = room_for_one(c)
    if err:
        return err
    memset(c.data + c.length * c.width, 0, c.width)
    counted(c)
    return 0


cdef int put_absent(Reading *r, const Field *f) noexcept nogil:
    cdef int err
    if f.flags & REQUIRED:
        return ERR_REQUIRED
    if f.flags & NULLABLE:
        return put_null(r.nodes, r.kids, f.column)
    if f.wire == W_MESSAGE or f.wire == W_GROUP:  # the value of a map's entry
        err = run(r, f.inner, NULL, NULL)
        return err if err else close_struct(&r.nodes[f.column])
    if f.default >= 0:
        return put_binary(&r.nodes[f.column], r.defaults[f.default].p, r.defaults[f.default].n)
    return put_zero(&r.nodes[f.column])


cdef int check(const uint8_t *p, const uint8_t *end) noexcept nogil:
    # Whether a part of a message ends where a field does: what begins in one part can't end in the next.
    cdef Tag tag
    cdef int err
    while p != end:
        err = read_tag(p, end, &tag, 0)
        if err:
            return err
        p = tag.after
    return 0


cdef int put_merged(Reading *r, const Field *f, const Slot *slot) noexcept nogil:
    # A message that occurs several times: its parts, one behind the other, are one.
    cdef uint8_t *whole = <uint8_t *> malloc(slot.after - slot.first)
    cdef const uint8_t *p = slot.first
    cdef const uint8_t *after = slot.after
    cdef int64_t n = 0
    cdef Tag tag
    cdef int err = 0
    if whole == NULL:
        return ERR_MEMORY
    while p != after:
        err = read_tag(p, after, &tag, 0)
        if err:
            break
        if tag.number == f.number and fits(f, tag.wire):
            err = check(tag.p, tag.p + tag.n)
            if err:
                break
            memcpy(whole + n, tag.p, tag.n)
            n += tag.n
        p = tag.after
    if not err:
        err = put_value(r, f, f.column, f.wire, whole, n)
    free(whole)
    return err


cdef int put_items(Reading *r, const Field *f, const uint8_t *p, const uint8_t *after) noexcept nogil:
    # Items of a repeated field, alone or packed.
    cdef Tag tag
    cdef int err, item = r.kids[r.nodes[f.column].first_child], wire = wire_of(f.wire)
    cdef const uint8_t *end
    cdef const uint8_t *next
    cdef uint64_t value
    while p != after:
        err = read_tag(p, after, &tag, 0)
        if err:
            return err
        if tag.number == f.number and fits(f, tag.wire):
            if f.wire >= W_BYTES or tag.wire != 2:
                if not (f.wire == W_ENUM and is_unknown(r, f, tag.p, tag.after)):
                    err = put_value(r, f, item, f.wire, tag.p, tag.n)
            else:
                end = tag.p + tag.n
                next = tag.p
                while next != end and not err:
                    tag.p = next
                    if wire == 0:
                        err = read_varint(&next, end, &value)
                        if err:
                            return err
                    else:
                        if end - next < (8 if wire == 1 else 4):
                            return ERR_SHORT
                        next += 8 if wire == 1 else 4
                    if not (f.wire == W_ENUM and is_unknown(r, f, tag.p, next)):
                        err = put_value(r, f, item, f.wire, tag.p, next - tag.p)
            if err:
                return err
        p = tag.after
    return close_list(r.nodes, r.kids, f.column)


cdef int put_entries(Reading *r, const Field *f, const Slot *slot) noexcept nogil:
    # Entries of a map; of several with one key the last one counts.
    cdef const Message *m = &r.messages[f.inner]
    cdef int64_t count = slot.count, k = 0
    cdef const uint8_t *p = slot.first
    cdef const uint8_t *after = slot.after
    cdef Entry *entries = <Entry *> malloc(count * sizeof(Entry))
    cdef Entry *entry
    cdef Tag tag
    cdef int err = 0
    if entries == NULL:
        return ERR_MEMORY
    while p != after and not err:
        err = read_tag(p, after, &tag, 0)
        if err:
            break
        if tag.number == f.number and fits(f, tag.wire):
            entry = &entries[k]
            entry.p, entry.n = tag.p, tag.n
            entry.replaced = 0
            k += 1
            err = read_key(r, m, entry)
            if not err:
                entry.replaced = has_unknown(r, m, tag.p, tag.after)
        p = tag.after
    if not err:
        err = mark_replaced(entries, k)
    if not err:
        count = k
        for k in range(count):
            if entries[k].replaced:
                err = check_message(r, f.inner, entries[k].p, entries[k].p + entries[k].n)
            else:
                err = run(r, f.inner, entries[k].p, entries[k].p + entries[k].n)
            if err:
                break
    free(entries)
    return err if err else close_list(r.nodes, r.kids, f.column)


cdef int has_unknown(Reading *r, const Message *m, const uint8_t *p, const uint8_t *end) noexcept nogil:
    # Whether an entry has anything but its key and its value, such as a number that is none of its enum: then it is an unknown field.
    cdef Tag tag
    cdef int k
    while p != end and not read_tag(p, end, &tag, 0):
        k = find(r, m, tag.number)
        if k < 0 or not fits(&r.fields[m.first + k], tag.wire) or is_unknown(r, &r.fields[m.first + k], tag.p, tag.after):
            return 1
        p = tag.after
    return 0


cdef int read_key(Reading *r, const Message *m, Entry *entry) noexcept nogil:
    cdef const Field *f = &r.fields[m.first]
    cdef const Slot *slot = &r.slots[m.first]
    cdef const uint8_t *p
    cdef int err = scan(r, m, entry.p, entry.p + entry.n)
    entry.key, entry.size, entry.number = NULL, 0, 0
    if err or slot.count == 0:
        return err
    p = slot.last
    if f.wire == W_TEXT:
        entry.key, entry.size = slot.last, slot.n
    elif f.wire <= W_ENUM:
        read_varint(&p, p + slot.n, &entry.number)
        if r.nodes[f.column].kind == COL_BOOL:
            entry.number = entry.number != 0
        elif f.wire == W_UNSIGNED and r.nodes[f.column].width == 8 or r.nodes[f.column].width == 4:
            entry.number &= 0xFFFFFFFFU
    else:
        memcpy(&entry.number, p, slot.n)
    return 0


cdef inline int same_key(const Entry *a, const Entry *b) noexcept nogil:
    cdef int64_t k
    if a.number != b.number or a.size != b.size:
        return 0
    for k in range(a.size):
        if a.key[k] != b.key[k]:
            return 0
    return 1


cdef int mark_replaced(Entry *entries, int64_t count) noexcept nogil:
    # Marks entries whose key comes again, by a table of the last ones.
    cdef int64_t size = 4, k, j
    cdef int32_t *table
    cdef uint64_t hashed
    if count < 2:
        return 0
    while size < 2 * count:
        size *= 2
    table = <int32_t *> malloc(size * sizeof(int32_t))
    if table == NULL:
        return ERR_MEMORY
    memset(table, 0xFF, size * sizeof(int32_t))
    for k in range(count - 1, -1, -1):
        if entries[k].replaced:
            continue
        hashed = (SEED ^ entries[k].number) * <uint64_t> 0x9E3779B97F4A7C15U
        for j in range(entries[k].size):
            hashed = (hashed ^ entries[k].key[j]) * <uint64_t> 1099511628211U
        hashed = (hashed ^ hashed >> 32) * <uint64_t> 0xD6E8FEB86659FD93U      # so that the high bits of numbers count, too
        hashed ^= hashed >> 32
        j = hashed & <uint64_t> (size - 1)
        while table[j] >= 0 and not same_key(&entries[table[j]], &entries[k]):
            j = (j + 1) & (size - 1)
        if table[j] >= 0:
            entries[k].replaced = 1
        else:
            table[j] = <int32_t> k
    free(table)
    return 0


cdef int run(Reading *r, int number, const uint8_t *p, const uint8_t *end) noexcept nogil:
    # Reads a message: one value for each of its columns.
    cdef const Message *m = &r.messages[number]
    cdef const Field *f
    cdef const Slot *slot
    cdef int err = scan(r, m, p, end), k
    if err:
        return err
    for k in range(m.count):
        f = &r.fields[m.first + k]
        slot = &r.slots[m.first + k]
        r.at = -1
        if f.shape == SINGULAR:
            if slot.count == 0:
                err = put_absent(r, f)
            elif slot.count > 1 and f.wire >= W_MESSAGE:
                err = put_merged(r, f, slot)
            else:
                err = put_value(r, f, f.column, f.wire, slot.last, slot.n)
        elif slot.count == 0:
            err = close_list(r.nodes, r.kids, f.column)
        elif f.shape == LIST:
            err = put_items(r, f, slot.first, slot.after)
        else:
            err = put_entries(r, f, slot)
        if err:
            if r.at < 0:
                r.at = m.first + k
            return err
    return 0


cdef class Machine:
    """A plan, ready to be carried out on any number of batches. It may be used by several threads."""

    cdef Reading read
    cdef int fields
    cdef object plan

    def __cinit__(self, plan):
        cdef int k, j
        cdef list flat = [one for enum_ in plan.symbols for one in enum_]
        self.plan = plan                      # keeps the texts
        self.fields = len(plan.paths)
        self.read.messages = <Message *> malloc((len(plan.messages) // 2 + 1) * sizeof(Message))
        self.read.fields = <Field *> malloc((self.fields + 1) * sizeof(Field))
        self.read.enums = <Symbols *> malloc((len(plan.symbols) + 1) * sizeof(Symbols))
        self.read.symbols = <Symbol *> malloc((len(flat) + 1) * sizeof(Symbol))
        self.read.defaults = <Text *> malloc((len(plan.defaults) + 1) * sizeof(Text))
        if (self.read.messages == NULL or self.read.fields == NULL or self.read.enums == NULL or self.read.symbols == NULL
                or self.read.defaults == NULL):
            raise MemoryError
        self.read.by_name = plan.enums == "name"
        row = plan.fields
        for k in range(self.fields):
            f = &self.read.fields[k]
            f.number, f.wire, f.shape, f.flags = row[9 * k], row[9 * k + 1], row[9 * k + 2], row[9 * k + 3]
            f.column, f.oneof, f.inner = row[9 * k + 4], row[9 * k + 5], row[9 * k + 6]
            f.symbols, f.default = row[9 * k + 7], row[9 * k + 8]
        for k in range(len(plan.messages) // 2):
            m = &self.read.messages[k]
            m.first, m.count = plan.messages[2 * k], plan.messages[2 * k + 1]
            for j in range(TABLE):
                m.table[j] = -1
            for j in range(m.count):
                if self.read.fields[m.first + j].number < TABLE:
                    m.table[self.read.fields[m.first + j].number] = j
        j = 0
        for k, enum_ in enumerate(plan.symbols):
            self.read.enums[k].first, self.read.enums[k].count = j, len(enum_)
            j += len(enum_)
        for k, (number, name) in enumerate(flat):
            self.read.symbols[k].number = number
            self.read.symbols[k].p = <const uint8_t *> <const char *> name
            self.read.symbols[k].n = len(name)
        for k, name in enumerate(plan.defaults):
            self.read.defaults[k].p = <const uint8_t *> <const char *> name
            self.read.defaults[k].n = len(name)

    def __dealloc__(self):
        free(self.read.messages)
        free(self.read.fields)
        free(self.read.enums)
        free(self.read.symbols)
        free(self.read.defaults)

    def run(self, array, const int32_t[::1] rows, const int32_t[::1] skipped):
        """Reads the values with these numbers, each from its own byte `skipped` on. Returns a batch of those that could be read, and
        (position in `rows`, code, field) of the others; field -1 is none. No value may be null."""
        cdef Values values = Values(array)
        cdef Columns columns = Columns(self.plan.schema)
        cdef Reading r = self.read
        cdef int64_t count = rows.shape[0], k, good = 0
        cdef const uint8_t *p
        cdef const uint8_t *end
        cdef int err
        cdef list failures = []
        columns.reserve(count)
        r.slots = <Slot *> malloc((self.fields + 1) * sizeof(Slot))
        if r.slots == NULL:
            raise MemoryError
        r.nodes, r.kids = columns.nodes, columns.kids
        with nogil:
            for k in range(count):
                p, end = values.begin(rows[k]) + skipped[k], values.end(rows[k])
                r.at = -1
                err = ERR_SHORT if p > end else run(&r, 0, p, end)
                if err == 0:
                    err = close_struct(&r.nodes[0])
                if err == 0:
                    good += 1
                    continue
                truncate(r.nodes, r.kids, 0, good)
                with gil:
                    failures.append((k, err, r.at))
        free(r.slots)
        return columns.finish(), failures
