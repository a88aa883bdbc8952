# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The kernel that writes Protobuf: carries out a program on columns, without the GIL and without an object for each value.

`_reference_protobuf_encoder.py` is its twin. Columns come from Arrow, in the forms that `protobuf_column.py` names; what Arrow promises of
them holds, but for UTF-8, which is looked at.
"""

include "_columns.pxi"

cdef enum:
    OP_VARINT = 0
    OP_ZIGZAG = 1
    OP_FIXED32 = 2
    OP_FIXED64 = 3
    OP_FLOAT = 4
    OP_DOUBLE = 5
    OP_BOOL = 6
    OP_ENUM = 7
    OP_BYTES = 8
    OP_TEXT = 9
    OP_TIMESTAMP = 10
    OP_DURATION = 11
    OP_MESSAGE = 12
    OP_GROUP = 13
    OP_LIST = 14
    OP_PACKED = 15
    OP_MAP = 16
    OP_ONEOF = 17
    OP_JSON = 18

cdef enum:
    AS_INT32 = 1
    AS_INT64 = 2
    AS_UINT64 = 3
    AS_DECIMAL = 4
    AS_FLOAT = 5

cdef enum:
    RANGE_INT32 = 0
    RANGE_UINT32 = 1
    RANGE_INT64 = 2
    RANGE_UINT64 = 3

cdef enum:
    ALWAYS = 1
    NULLABLE = 2
    BARE = 4

cdef enum:
    ERR_NO_VALUE = 30
    ERR_RANGE = 31
    ERR_LARGE = 32
    ERR_FLOAT_RANGE = 33
    ERR_SYMBOL = 34
    ERR_UTF8 = 35
    ERR_TIME = 36
    ERR_MEMBERS = 37
    ERR_JSON = 38

cdef int64_t NO_SYMBOL = <int64_t> 1 << 40
cdef int64_t FIRST_SECOND = -62135596800LL, LAST_SECOND = 253402300799LL, MOST_SECONDS = 315576000000LL
cdef uint64_t MOST_INT64 = 0x7FFFFFFFFFFFFFFF, MOST_UINT32 = (<uint64_t> 1 << 32) - 1

cdef struct Step:
    int op
    int column
    int stored
    int64_t size
    int flags
    int first
    int count

cdef struct Text:
    const uint8_t *p
    int64_t n

include "_columns_read.pxi"


cdef inline int append_tag(Writing *w, int at) noexcept nogil:
    cdef const Text *tag = &w.texts[at]
    cdef int err
    if tag.n == 1:
        if w.out.used >= w.out.room:
            err = more_bytes(w.out, 1)
            if err:
                return err
        w.out.data[w.out.used] = tag.p[0]
        w.out.used += 1
        return 0
    return append(w.out, tag.p, tag.n) if tag.n else 0


cdef inline int begin_message(Writing *w, int at, int64_t *begin) noexcept nogil:
    # A tag, and one byte for the length, which is that of most messages.
    cdef uint8_t zero = 0
    cdef int err = append_tag(w, at)
    if err == 0:
        err = append(w.out, &zero, 1)
    begin[0] = w.out.used
    return err


cdef int end_message(Writing *w, int64_t begin) noexcept nogil:
    # Puts the length in front of what was written since; a longer one moves that.
    cdef uint64_t n = <uint64_t> (w.out.used - begin), left = n >> 7
    cdef int more = 0, err, k
    while left:
        more += 1
        left >>= 7
    if more:
        if w.out.used + more > w.out.room:
            err = more_bytes(w.out, more)
            if err:
                return err
        memmove(w.out.data + begin + more, w.out.data + begin, n)
        w.out.used += more
    left = n
    for k in range(more):
        w.out.data[begin - 1 + k] = <uint8_t> (left & 0x7F | 0x80)
        left >>= 7
    w.out.data[begin - 1 + more] = <uint8_t> left
    return 0


cdef int write_number(Writing *w, const Step *step, const Input *c, int64_t row, int at) noexcept nogil:
    cdef int64_t number
    cdef uint64_t bits
    cdef const uint8_t *p
    cdef uint64_t high = 0
    cdef int err, fits
    if step.stored == AS_INT32 or step.stored == AS_INT64:
        number = (<const int32_t *> c.data)[c.first + row] if step.stored == AS_INT32 else (<const int64_t *> c.data)[c.first + row]
        if step.op == OP_ENUM and number == NO_SYMBOL:
            return failed(w, ERR_SYMBOL, at, 0)
        if step.size == RANGE_INT32:
            fits = number == <int32_t> number
        elif step.size == RANGE_UINT32:
            fits = number == <int64_t> <uint32_t> number
        else:
            fits = step.size == RANGE_INT64 or number >= 0
        if not fits:
            return failed(w, ERR_RANGE, at, number)
        bits = <uint64_t> number
    else:
        p = c.data + (c.first + row) * c.width
        memcpy(&bits, p, 8)
        if step.stored == AS_DECIMAL:
            memcpy(&high, p + 8, 8)
        if high == ~<uint64_t> 0 and bits > MOST_INT64:     # negative, in 64 bits
            number = <int64_t> bits
            fits = number == <int32_t> number if step.size == RANGE_INT32 else step.size == RANGE_INT64
        elif high:
            fits = 0
        elif step.size == RANGE_INT32:
            fits = bits <= MOST_UINT32 >> 1
        elif step.size == RANGE_UINT32:
            fits = bits <= MOST_UINT32
        else:
            fits = step.size == RANGE_UINT64 or bits <= MOST_INT64
        if not fits:
            return failed(w, ERR_LARGE, at, 0)
    if bits == 0 and not step.flags & ALWAYS:
        return 0
    err = append_tag(w, at)
    if err:
        return err
    if step.op == OP_FIXED32:
        return append(w.out, <const uint8_t *> &bits, 4)
    if step.op == OP_FIXED64:
        return append(w.out, <const uint8_t *> &bits, 8)
    if step.op == OP_ZIGZAG:
        bits = bits << 1 ^ <uint64_t> (<int64_t> bits >> 63)
    return append_varint(w.out, bits)


cdef int write_floating(Writing *w, const Step *step, const Input *c, int64_t row, int at) noexcept nogil:
    cdef double wide
    cdef float narrow
    cdef uint64_t bits = 0
    cdef int err, n = 8 if step.op == OP_DOUBLE else 4
    if step.stored == AS_FLOAT:
        narrow = (<const float *> c.data)[c.first + row]
        wide = narrow
    else:
        wide = (<const double *> c.data)[c.first + row]
        narrow = <float> wide
    if n == 4:
        if narrow - narrow != 0 and wide - wide == 0:
            return failed(w, ERR_FLOAT_RANGE, at, 0)
        memcpy(&bits, &narrow, 4)
    else:
        memcpy(&bits, &wide, 8)
    if bits == 0 and not step.flags & ALWAYS:
        return 0
    err = append_tag(w, at)
    return err if err else append(w.out, <const uint8_t *> &bits, n)


cdef int write_bytes(Writing *w, const Step *step, const Input *c, int64_t row, int at) noexcept nogil:
    cdef int32_t begin = c.offsets[c.first + row]
    cdef int64_t n = c.offsets[c.first + row + 1] - begin
    cdef int err
    if step.op == OP_JSON:                      # its first byte says whether it is a message
        if n == 0 or c.data[begin] == 0:
            return failed(w, ERR_JSON, at, 0)
        begin += 1
        n -= 1
    if step.op == OP_TEXT and n and not utf8_valid(c.data + begin, n):
        return failed(w, ERR_UTF8, at, 0)
    if n == 0 and not step.flags & ALWAYS:
        return 0
    err = append_tag(w, at)
    if err == 0:
        err = append_varint(w.out, n)
    if err:
        return err
    return append(w.out, c.data + begin, n) if n else 0


cdef int write_time(Writing *w, const Step *step, const Input *c, int64_t row, int at) noexcept nogil:
    # Seconds and nanoseconds: of a Timestamp the latter are never negative, of a Duration both have one sign.
    cdef int64_t value = (<const int64_t *> c.data)[c.first + row], units = step.size
    cdef int64_t seconds = value // units, rest = value % units, begin
    cdef uint8_t tag
    cdef int err
    if step.op == OP_TIMESTAMP:
        if rest < 0:
            seconds -= 1
            rest += units
        if seconds < FIRST_SECOND or seconds > LAST_SECOND:
            return failed(w, ERR_TIME, at, 0)
    elif seconds < -MOST_SECONDS or seconds > MOST_SECONDS:
        return failed(w, ERR_TIME, at, 0)
    err = begin_message(w, at, &begin)
    if err == 0 and seconds:
        tag = 0x08
        err = append(w.out, &tag, 1)
        if err == 0:
            err = append_varint(w.out, <uint64_t> seconds)
    if err == 0 and rest:
        tag = 0x10
        err = append(w.out, &tag, 1)
        if err == 0:
            err = append_varint(w.out, <uint64_t> (rest * (1000000000 // units)))
    return err if err else end_message(w, begin)


cdef int write_items(Writing *w, const Step *step, const Input *c, int64_t row, int at) noexcept nogil:
    cdef int64_t first = c.offsets[c.first + row], last = c.offsets[c.first + row + 1], k, begin
    cdef int err = 0
    if step.op == OP_LIST:
        for k in range(first, last):
            err = write(w, w.children[step.first], k)
            if err:
                return err
        return 0
    if step.op == OP_PACKED:
        if first == last:
            return 0
        err = begin_message(w, at, &begin)
        for k in range(first, last):
            if err:
                return err
            err = write(w, w.children[step.first], k)
        return err if err else end_message(w, begin)
    for k in range(first, last):
        err = begin_message(w, at, &begin)
        if err == 0:
            err = write_children(w, step, k)
        if err == 0:
            err = end_message(w, begin)
        if err:
            return err
    return 0


cdef int write_children(Writing *w, const Step *step, int64_t row) noexcept nogil:
    cdef int k, err
    for k in range(step.count):
        err = write(w, w.children[step.first + k], row)
        if err:
            return err
    return 0


cdef int check_members(Writing *w, const Step *step, int64_t row, int at) noexcept nogil:
    # That no two members of a oneof are set.
    cdef int64_t found = -1
    cdef int k
    for k in range(step.count):
        if is_null(&w.inputs[w.steps[w.children[step.first + k]].column], row):
            continue
        if found >= 0:
            return failed(w, ERR_MEMBERS, at, found << 32 | k)
        found = k
    return 0


cdef int write_message(Writing *w, const Step *step, int64_t row, int at) noexcept nogil:
    cdef int64_t begin
    cdef const Text *tag = &w.texts[at]
    cdef uint8_t byte
    cdef int err
    if step.flags & BARE:
        return write_children(w, step, row)
    if step.op == OP_MESSAGE:
        err = begin_message(w, at, &begin)
        if err == 0:
            err = write_children(w, step, row)
        return err if err else end_message(w, begin)
    err = append_tag(w, at)
    if err == 0:
        err = write_children(w, step, row)
    if err == 0:
        byte = tag.p[0] + 1         # the tag of a group's end
        err = append(w.out, &byte, 1)
    if err == 0 and tag.n > 1:
        err = append(w.out, tag.p + 1, tag.n - 1)
    return err


cdef int write(Writing *w, int at, int64_t row) noexcept nogil:
    # Writes the field of step `at` from its column in this row. Returns 0, a code after `failed`, or one of the columns'.
    cdef const Step *step = &w.steps[at]
    cdef int op = step.op, err
    cdef const Input *c
    cdef uint8_t byte
    if op == OP_ONEOF:
        return check_members(w, step, row, at)
    c = &w.inputs[step.column]
    if is_null(c, row):
        return 0 if step.flags & NULLABLE else failed(w, ERR_NO_VALUE, at, 0)
    if op == OP_BYTES or op == OP_TEXT or op == OP_JSON:
        return write_bytes(w, step, c, row, at)
    if op == OP_FLOAT or op == OP_DOUBLE:
        return write_floating(w, step, c, row, at)
    if op == OP_BOOL:
        byte = (c.data[(c.first + row) >> 3] >> ((c.first + row) & 7)) & 1
        if byte == 0 and not step.flags & ALWAYS:
            return 0
        err = append_tag(w, at)
        return err if err else append(w.out, &byte, 1)
    if op == OP_TIMESTAMP or op == OP_DURATION:
        return write_time(w, step, c, row, at)
    if op == OP_MESSAGE or op == OP_GROUP:
        return write_message(w, step, row, at)
    if op == OP_LIST or op == OP_PACKED or op == OP_MAP:
        return write_items(w, step, c, row, at)
    return write_number(w, step, c, row, at)


cdef class Machine:
    """A program, ready to be carried out on any number of batches. It may be used by several threads."""

    cdef Step *steps
    cdef int *children
    cdef Text *tags
    cdef object program

    def __cinit__(self, program):
        cdef int count = len(program.steps) // 7, k
        self.program = program                 # keeps the tags
        self.steps = <Step *> malloc((count + 1) * sizeof(Step))
        self.children = <int *> malloc((len(program.children) + 1) * sizeof(int))
        self.tags = <Text *> malloc((count + 1) * sizeof(Text))
        if self.steps == NULL or self.children == NULL or self.tags == NULL:
            raise MemoryError
        flat = program.steps
        for k in range(count):
            self.steps[k].op = flat[7 * k]
            self.steps[k].column = flat[7 * k + 1]
            self.steps[k].stored = flat[7 * k + 2]
            self.steps[k].size = flat[7 * k + 3]
            self.steps[k].flags = flat[7 * k + 4]
            self.steps[k].first = flat[7 * k + 5]
            self.steps[k].count = flat[7 * k + 6]
        for k, child in enumerate(program.children):
            self.children[k] = child
        for k, tag in enumerate(program.tags):
            self.tags[k].p = <const uint8_t *> <const char *> tag
            self.tags[k].n = len(tag)

    def __dealloc__(self):
        free(self.steps)
        free(self.children)
        free(self.tags)

    def run(self, columns, int64_t rows, bytes frame):
        """Writes so many rows, each behind `frame`. Returns a binary array of those that could be written, and
        (row, code, step, number) of the others. Raises `OverflowError` where the values have more than 2 GiB."""
        cdef Writing w
        w.steps, w.children, w.texts = self.steps, self.children, self.tags
        return written(&w, columns, rows, frame)
