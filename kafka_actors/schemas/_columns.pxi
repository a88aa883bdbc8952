# Arrow columns under construction: the nodes of a schema's type tree, each with buffers that grow by appending.
# A failed record is undone by `truncate`, which needs no marks: a row's children are known from the offsets before it.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove, memset

import pyarrow as pa

cdef enum:
    COL_NULL = 0
    COL_BOOL = 1
    COL_FIXED = 2
    COL_BINARY = 3
    COL_LIST = 4
    COL_MAP = 5
    COL_STRUCT = 6

cdef enum:
    ERR_MEMORY = 1
    ERR_FULL = 2      # more than 2 GiB of bytes, or 2^31 items, in one column

cdef int64_t MOST = 0x7FFFFFFF

cdef struct Column:
    int kind
    int width             # bytes of a value, COL_FIXED
    int first_child       # in `kids`
    int children
    int64_t length
    int64_t capacity
    int64_t nulls
    uint8_t *valid        # a byte a value; NULL until the first null
    uint8_t *data         # COL_FIXED and COL_BOOL: values; COL_BINARY: bytes
    int64_t used          # of `data`, COL_BINARY
    int64_t room          # of `data`, COL_BINARY
    int32_t *offsets      # COL_BINARY, COL_LIST, COL_MAP: length + 1


cdef int grow(Column *c) noexcept nogil:
    cdef int64_t wanted = c.capacity * 2 if c.capacity else 64
    return set_capacity(c, wanted)


cdef int set_capacity(Column *c, int64_t wanted) noexcept nogil:
    # Room for that many values; never fewer than there are.
    cdef void *made
    if wanted <= c.capacity:
        return 0
    if wanted > MOST:
        wanted = MOST
        if c.length >= MOST:
            return ERR_FULL
    if c.valid != NULL:
        made = realloc(c.valid, wanted)
        if made == NULL:
            return ERR_MEMORY
        c.valid = <uint8_t *> made
    if c.kind == COL_FIXED or c.kind == COL_BOOL:
        made = realloc(c.data, wanted * c.width + 1)
        if made == NULL:
            return ERR_MEMORY
        c.data = <uint8_t *> made
    elif c.kind == COL_BINARY or c.kind == COL_LIST or c.kind == COL_MAP:
        made = realloc(c.offsets, (wanted + 1) * 4)
        if made == NULL:
            return ERR_MEMORY
        c.offsets = <int32_t *> made
        if c.capacity == 0:
            c.offsets[0] = 0
    c.capacity = wanted
    return 0


cdef inline int room_for_one(Column *c) noexcept nogil:
    if c.length < c.capacity:
        return 0
    return grow(c)


cdef inline void counted(Column *c) noexcept nogil:
    if c.valid != NULL:
        c.valid[c.length] = 1
    c.length += 1


cdef inline int put_bool(Column *c, int v) noexcept nogil:
    cdef int err = room_for_one(c)
    if err:
        return err
    c.data[c.length] = v != 0
    counted(c)
    return 0


cdef inline int put_i8(Column *c, int8_t v) noexcept nogil:
    cdef int err = room_for_one(c)
    if err:
        return err
    (<int8_t *> c.data)[c.length] = v
    counted(c)
    return 0


cdef inline int put_i16(Column *c, int16_t v) noexcept nogil:
    cdef int err = room_for_one(c)
    if err:
        return err
    (<int16_t *> c.data)[c.length] = v
    counted(c)
    return 0


cdef inline int put_i32(Column *c, int32_t v) noexcept nogil:
    cdef int err = room_for_one(c)
    if err:
        return err
    (<int32_t *> c.data)[c.length] = v
    counted(c)
    return 0


cdef inline int put_i64(Column *c, int64_t v) noexcept nogil:
    cdef int err = room_for_one(c)
    if err:
        return err
    (<int64_t *> c.data)[c.length] = v
    counted(c)
    return 0


cdef inline int put_f32(Column *c, float v) noexcept nogil:
    cdef int err = room_for_one(c)
    if err:
        return err
    (<float *> c.data)[c.length] = v
    counted(c)
    return 0


cdef inline int put_f64(Column *c, double v) noexcept nogil:
    cdef int err = room_for_one(c)
    if err:
        return err
    (<double *> c.data)[c.length] = v
    counted(c)
    return 0


cdef inline int put_fixed(Column *c, const uint8_t *p) noexcept nogil:
    cdef int err = room_for_one(c)
    if err:
        return err
    memcpy(c.data + c.length * c.width, p, c.width)
    counted(c)
    return 0


cdef int more_bytes(Column *c, int64_t n) noexcept nogil:
    # Room for n more bytes in a COL_BINARY.
    cdef int64_t wanted
    cdef void *made
    if c.used + n > MOST:
        return ERR_FULL
    wanted = c.room * 2 if c.room else 1024
    if wanted < c.used + n:
        wanted = c.used + n
    made = realloc(c.data, wanted)
    if made == NULL:
        return ERR_MEMORY
    c.data = <uint8_t *> made
    c.room = wanted
    return 0


cdef inline int put_binary(Column *c, const uint8_t *p, int64_t n) noexcept nogil:
    cdef int err = room_for_one(c)
    if err:
        return err
    if c.used + n > c.room:
        err = more_bytes(c, n)
        if err:
            return err
    if n:
        memcpy(c.data + c.used, p, n)
    c.used += n
    c.offsets[c.length + 1] = <int32_t> c.used
    counted(c)
    return 0


cdef int put_null(Column *nodes, int *kids, int at) noexcept nogil:
    # A null at this node; below a struct its children get placeholders, which are nulls too.
    cdef Column *c = &nodes[at]
    cdef int err, k
    err = room_for_one(c)
    if err:
        return err
    if c.kind == COL_STRUCT:
        for k in range(c.children):
            err = put_null(nodes, kids, kids[c.first_child + k])
            if err:
                return err
    elif c.kind == COL_FIXED or c.kind == COL_BOOL:
        memset(c.data + c.length * c.width, 0, c.width)
    elif c.kind == COL_BINARY:
        c.offsets[c.length + 1] = <int32_t> c.used
    elif c.kind == COL_LIST or c.kind == COL_MAP:
        c.offsets[c.length + 1] = c.offsets[c.length]
    if c.valid == NULL:
        c.valid = <uint8_t *> malloc(c.capacity)
        if c.valid == NULL:
            return ERR_MEMORY
        memset(c.valid, 1, c.length)
    c.valid[c.length] = 0
    c.nulls += 1
    c.length += 1
    return 0


cdef inline int close_list(Column *nodes, int *kids, int at) noexcept nogil:
    # Ends a list or map whose items were put.
    cdef Column *c = &nodes[at]
    cdef int64_t items = nodes[kids[c.first_child]].length
    cdef int err = room_for_one(c)
    if err:
        return err
    if items > MOST:
        return ERR_FULL
    c.offsets[c.length + 1] = <int32_t> items
    counted(c)
    return 0


cdef inline int close_struct(Column *c) noexcept nogil:
    # Ends a struct each of whose children was put once.
    cdef int err = room_for_one(c)
    if err:
        return err
    counted(c)
    return 0


cdef void truncate(Column *nodes, int *kids, int at, int64_t rows) noexcept nogil:
    # Forgets all that was put into this node and below it after `rows` values, also where a value wasn't ended.
    cdef Column *c = &nodes[at]
    cdef int64_t k, kept
    if rows < c.length:
        if c.valid != NULL:
            for k in range(rows, c.length):
                c.nulls -= 1 - c.valid[k]
        c.length = rows
    if c.kind == COL_STRUCT:
        for k in range(c.children):
            truncate(nodes, kids, kids[c.first_child + k], rows)
    elif c.kind == COL_BINARY:
        c.used = c.offsets[c.length] if c.offsets != NULL else 0
    elif c.kind == COL_LIST or c.kind == COL_MAP:
        kept = c.offsets[c.length] if c.offsets != NULL else 0
        for k in range(c.children):
            truncate(nodes, kids, kids[c.first_child + k], kept)


cdef inline uint64_t load_u64(const uint8_t *p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return v


cdef int utf8_valid(const uint8_t *p, int64_t n) noexcept nogil:
    # Whether n bytes are UTF-8: no overlong forms, no surrogates, nothing beyond U+10FFFF.
    cdef const uint8_t *end = p + n
    cdef uint8_t a, b
    cdef int more, k
    while p < end:
        if end - p >= 8 and not load_u64(p) & <uint64_t> 0x8080808080808080:
            p += 8
            continue
        a = p[0]
        if a < 0x80:
            p += 1
            continue
        if a < 0xC2 or a > 0xF4:
            return 0
        more = 1 if a < 0xE0 else 2 if a < 0xF0 else 3
        if end - p <= more:
            return 0
        b = p[1]
        if a == 0xE0 and b < 0xA0 or a == 0xED and b > 0x9F or a == 0xF0 and b < 0x90 or a == 0xF4 and b > 0x8F:
            return 0
        for k in range(1, more + 1):
            if p[k] & 0xC0 != 0x80:
                return 0
        p += more + 1
    return 1


cdef void pack_bits(const uint8_t *values, int64_t n, uint8_t *bits) noexcept nogil:
    # Bytes of 0 or 1 to Arrow's bits, lowest first; `bits` has room for (n + 7) / 8 bytes.
    cdef int64_t whole = n >> 3, k
    cdef int left = <int> (n & 7), j
    cdef uint8_t last = 0
    for k in range(whole):
        bits[k] = <uint8_t> ((load_u64(values + 8 * k) * <uint64_t> 0x0102040810204080) >> 56)
    if left:
        for j in range(left):
            last |= values[8 * whole + j] << j
        bits[whole] = last


cdef class _Memory:
    # Owner of a buffer that Arrow reads.
    cdef void *p

    def __dealloc__(self):
        free(self.p)


cdef object _buffer(void *p, int64_t size):
    # An Arrow buffer over malloc'ed memory, which it frees at its end.
    if p == NULL:
        return _NOTHING
    cdef _Memory owner = _Memory.__new__(_Memory)
    owner.p = p
    return pa.foreign_buffer(<uintptr_t> p, size, owner)


cdef object _bits(const uint8_t *values, int64_t n):
    cdef uint8_t *bits = <uint8_t *> malloc((n + 7) // 8 + 1)
    if bits == NULL:
        raise MemoryError
    pack_bits(values, n, bits)
    return _buffer(bits, (n + 7) // 8)


_NOTHING = pa.py_buffer(b"")
_NO_OFFSETS = pa.py_buffer(b"\0\0\0\0")


cdef class Columns:
    """Columns of a schema under construction. Column 0 is the row itself; then come the children, each with its own
    children behind it. A list has one child, a map two: key and value."""

    cdef Column *nodes
    cdef int *kids
    cdef readonly int count
    cdef readonly object schema

    def __cinit__(self, schema):
        cdef list found = []
        cdef list children = []
        self.schema = schema
        self._collect(pa.struct(list(schema)), found, children)
        self.count = len(found)
        self.nodes = <Column *> calloc(self.count, sizeof(Column))
        kids = [number for one in children for number in one]
        self.kids = <int *> malloc((len(kids) + 1) * sizeof(int))
        if self.nodes == NULL or self.kids == NULL:
            raise MemoryError
        cdef int at = 0, k
        for k in range(self.count):
            self.nodes[k].kind, self.nodes[k].width = found[k]
            self.nodes[k].first_child = at
            self.nodes[k].children = len(children[k])
            for number in children[k]:
                self.kids[at] = number
                at += 1

    def __dealloc__(self):
        cdef int k
        if self.nodes != NULL:
            for k in range(self.count):
                free(self.nodes[k].valid)
                free(self.nodes[k].data)
                free(self.nodes[k].offsets)
        free(self.nodes)
        free(self.kids)

    cdef int _collect(self, kind, list found, list children) except -1:
        cdef int at = len(found)
        types = pa.types
        inner = []
        width = 1
        if types.is_struct(kind):
            what, inner = COL_STRUCT, [field.type for field in kind]
        elif types.is_map(kind):
            what, inner = COL_MAP, [kind.key_type, kind.item_type]
        elif types.is_list(kind):
            what, inner = COL_LIST, [kind.value_type]
        elif types.is_string(kind) or types.is_binary(kind):
            what = COL_BINARY
        elif types.is_boolean(kind):
            what = COL_BOOL
        elif types.is_null(kind):
            what = COL_NULL
        elif types.is_fixed_size_binary(kind):
            what, width = COL_FIXED, kind.byte_width
        else:
            what, width = COL_FIXED, kind.bit_width // 8
        found.append((what, width))
        numbers = []
        children.append(numbers)
        for one in inner:
            numbers.append(self._collect(one, found, children))
        return at

    def reserve(self, int64_t rows):
        """Makes room for that many rows, where each has one value of each column."""
        self._reserve(0, rows)

    cdef int _reserve(self, int at, int64_t rows) except -1:
        cdef Column *c = &self.nodes[at]
        cdef int k
        if set_capacity(c, rows):
            raise MemoryError
        if c.kind == COL_STRUCT:
            for k in range(c.children):
                self._reserve(self.kids[c.first_child + k], rows)
        return 0

    def finish(self):
        """The rows as a RecordBatch, whose buffers are those that were filled; there are no rows afterwards."""
        cdef Column *root = &self.nodes[0]
        cdef int64_t rows = root.length
        made = [
            self._array(self.kids[root.first_child + k], field.type, field.nullable)
            for k, field in enumerate(self.schema)
        ]
        root.length = root.capacity = 0
        if not made:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        return pa.RecordBatch.from_arrays(made, schema=self.schema)

    cdef object _array(self, int at, kind, bint nullable):
        cdef Column *c = &self.nodes[at]
        cdef int64_t n = c.length, nulls = c.nulls if nullable else 0
        validity = _bits(c.valid, n) if nulls and c.kind != COL_NULL else None
        buffers = [validity]
        children = []
        if c.kind == COL_BOOL:
            buffers.append(_bits(c.data, n))
        elif c.kind == COL_FIXED:
            buffers.append(_buffer(c.data, n * c.width))
            c.data = NULL
        elif c.kind != COL_STRUCT and c.kind != COL_NULL:
            buffers.append(_NO_OFFSETS if c.offsets == NULL else _buffer(c.offsets, (n + 1) * 4))
            c.offsets = NULL
            if c.kind == COL_BINARY:
                buffers.append(_buffer(c.data, c.used))
                c.data = NULL
        if c.kind == COL_STRUCT:
            children = [
                self._array(self.kids[c.first_child + k], field.type, field.nullable) for k, field in enumerate(kind)
            ]
        elif c.kind == COL_LIST:
            children = [self._array(self.kids[c.first_child], kind.value_type, kind.value_field.nullable)]
        elif c.kind == COL_MAP:
            key = self._array(self.kids[c.first_child], kind.key_type, False)
            value = self._array(self.kids[c.first_child + 1], kind.item_type, kind.item_field.nullable)
            entries = pa.struct([kind.key_field, kind.item_field])
            children = [pa.StructArray.from_buffers(entries, len(key), [None], 0, 0, [key, value])]
        self._emptied(c)
        return pa.Array.from_buffers(kind, n, buffers, n if c.kind == COL_NULL else nulls, 0, children)

    cdef void _emptied(self, Column *c) noexcept:
        free(c.valid)
        free(c.data)
        free(c.offsets)
        c.valid = c.data = NULL
        c.offsets = NULL
        c.length = c.capacity = c.nulls = c.used = c.room = 0


cdef class Values:
    """Values of a binary column as they lie in memory."""

    cdef object array                # keeps the buffers
    cdef const uint8_t *data
    cdef const int32_t *offsets
    cdef const uint8_t *validity
    cdef int64_t first               # of the slice
    cdef readonly int64_t count

    def __cinit__(self, array):
        if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
            raise TypeError(f"the values are {array.type}: give binary")
        validity, offsets, data = array.buffers()
        self.array = array
        self.count = len(array)
        self.first = array.offset
        self.data = <const uint8_t *> <uintptr_t> (data.address if data is not None else 0)
        self.offsets = <const int32_t *> <uintptr_t> (offsets.address if offsets is not None and offsets.size else 0)
        self.validity = <const uint8_t *> <uintptr_t> (validity.address if validity is not None and array.null_count else 0)

    cdef inline int is_null(self, int64_t row) noexcept nogil:
        cdef int64_t at = self.first + row
        return self.validity != NULL and not (self.validity[at >> 3] >> (at & 7)) & 1

    cdef inline const uint8_t *begin(self, int64_t row) noexcept nogil:
        return self.data + self.offsets[self.first + row]

    cdef inline const uint8_t *end(self, int64_t row) noexcept nogil:
        return self.data + self.offsets[self.first + row + 1]
