# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The kernel that writes Avro: carries out a program on columns, without the GIL and without an object for each value.

`_reference_avro_encoder.py` is its twin. Columns come from Arrow, in the forms that `avro_column.py` names; what Arrow promises of them holds.
"""

include "_columns.pxi"
include "_avro_program.pxi"
include "_columns_read.pxi"

cdef int64_t LOW_BITS = (<int64_t> 1 << 32) - 1

cdef inline int append_long(Column *out, int64_t number) noexcept nogil:
    return append_varint(out, (<uint64_t> number << 1) ^ <uint64_t> (number >> 63))


cdef inline int64_t number_at(const Input *c, int store, int64_t row) noexcept nogil:
    if store == AS_INT32:
        return (<const int32_t *> c.data)[c.first + row]
    return (<const int64_t *> c.data)[c.first + row]


cdef int write_number(Writing *w, const Step *step, const Input *c, int64_t row, int at) noexcept nogil:
    cdef int64_t number = number_at(c, step.store, row), factor = step.size
    if factor > 1:
        if number > (<int64_t> 0x7FFFFFFFFFFFFFFF) // factor or number < -((<int64_t> 0x7FFFFFFFFFFFFFFF) // factor):
            return failed(w, ERR_LONG_RANGE, at, number)
        number *= factor
    elif factor < -1:
        if number % -factor:
            return failed(w, ERR_UNIT, at, number)
        number = number // -factor
    if step.op == OP_INT and number != <int32_t> number:
        return failed(w, ERR_RANGE, at, number)
    return append_long(w.out, number)


cdef int write_floating(Writing *w, const Step *step, const Input *c, int64_t row, int at) noexcept nogil:
    cdef double wide
    cdef float narrow
    if step.store == AS_FLOAT:
        narrow = (<const float *> c.data)[c.first + row]
        wide = narrow
    else:
        wide = (<const double *> c.data)[c.first + row]
        narrow = <float> wide
    if step.op == OP_DOUBLE:
        return append(w.out, <const uint8_t *> &wide, 8)
    if narrow - narrow != 0 and wide - wide == 0:
        return failed(w, ERR_FLOAT_RANGE, at, 0)
    return append(w.out, <const uint8_t *> &narrow, 4)


cdef int write_decimal(Writing *w, const Step *step, const Input *c, int64_t row, int at) noexcept nogil:
    # Arrow's little-endian number as the shortest big-endian one in two's complement, or as long as the fixed.
    cdef const uint8_t *p = c.data + (c.first + row) * c.width
    cdef uint8_t made[32]
    cdef uint8_t nines[32]
    cdef uint8_t sign = 0xFF if p[c.width - 1] & 0x80 else 0, byte
    cdef int width = c.width, k, j, n, digits, err
    cdef int64_t size
    cdef unsigned int carry, part
    digits = <int> (step.size if step.op == OP_DECIMAL else step.size >> 32)
    memset(nines, 0, 32)
    for k in range(digits):
        carry = 9
        for j in range(32):
            part = nines[j] * 10 + carry
            nines[j] = <uint8_t> part
            carry = part >> 8
    k = 31
    while k >= 0 and ((p[k] if k < width else sign) ^ sign) == nines[k]:
        k -= 1
    if k >= 0:
        byte = (p[k] if k < width else sign) ^ sign
        if byte > nines[k]:
            return failed(w, ERR_DECIMAL, at, 0)
    elif sign:
        return failed(w, ERR_DECIMAL, at, 0)
    n = width
    while n > 1 and p[n - 1] == sign and not (p[n - 2] ^ sign) & 0x80:
        n -= 1
    for k in range(n):
        made[k] = p[n - 1 - k]
    if step.op == OP_DECIMAL:
        err = append_long(w.out, n)
        return err if err else append(w.out, made, n)
    size = step.size & LOW_BITS
    if n > size:
        return failed(w, ERR_DECIMAL, at, 0)
    for j in range(size - n):
        err = append(w.out, &sign, 1)
        if err:
            return err
    return append(w.out, made, n)


cdef inline int hex_digit(uint8_t byte) noexcept nogil:
    if 48 <= byte <= 57:
        return byte - 48
    byte |= 32
    return byte - 87 if 97 <= byte <= 102 else -1


cdef int write_uuid(Writing *w, const uint8_t *p, int64_t n, int at) noexcept nogil:
    cdef uint8_t made[16]
    cdef int k, high, low, put = 0
    if n != 36:
        return failed(w, ERR_UUID, at, 0)
    k = 0
    while k < 36:
        if k == 8 or k == 13 or k == 18 or k == 23:
            if p[k] != 45:
                return failed(w, ERR_UUID, at, 0)
            k += 1
            continue
        high = hex_digit(p[k])
        low = hex_digit(p[k + 1])
        if high < 0 or low < 0:
            return failed(w, ERR_UUID, at, 0)
        made[put] = <uint8_t> (high << 4 | low)
        put += 1
        k += 2
    return append(w.out, made, 16)


cdef int write_duration(Writing *w, const uint8_t *p, int at) noexcept nogil:
    # Months, days and nanoseconds, to months, days and milliseconds as unsigned numbers.
    cdef int32_t months, days
    cdef int64_t nanos
    cdef uint32_t made[3]
    memcpy(&months, p, 4)
    memcpy(&days, p + 4, 4)
    memcpy(&nanos, p + 8, 8)
    if months < 0 or days < 0 or nanos < 0 or nanos % 1000000 or nanos // 1000000 > LOW_BITS:
        return failed(w, ERR_DURATION, at, 0)
    made[0], made[1], made[2] = <uint32_t> months, <uint32_t> days, <uint32_t> (nanos // 1000000)
    return append(w.out, <const uint8_t *> made, 12)


cdef int write_bytes(Writing *w, const Step *step, const Input *c, int64_t row, int at) noexcept nogil:
    cdef int32_t begin = c.offsets[c.first + row]
    cdef int64_t n = c.offsets[c.first + row + 1] - begin
    cdef int err
    if step.op == OP_UUID:
        return write_uuid(w, c.data + begin, n, at)
    if step.op == OP_FIXED:
        if n != step.size:
            return failed(w, ERR_SIZE, at, n)
    else:
        err = append_long(w.out, n)
        if err:
            return err
    return append(w.out, c.data + begin, n) if n else 0


cdef int write_items(Writing *w, const Step *step, const Input *c, int64_t row) noexcept nogil:
    cdef int64_t begin = c.offsets[c.first + row], end = c.offsets[c.first + row + 1], k
    cdef int err, child
    if end > begin:
        err = append_long(w.out, end - begin)
        if err:
            return err
        for k in range(begin, end):
            for child in range(<int> step.count):
                err = write(w, w.children[step.first + child], k)
                if err:
                    return err
    return append_long(w.out, 0)


cdef int write_union(Writing *w, const Step *step, const Input *c, int64_t row, int at) noexcept nogil:
    # A branch's number, and the value of the one member that is set. `size` is null's number, -1 where it is no branch.
    cdef const Step *member
    cdef const Step *found = NULL
    cdef int k, err, set = 0
    if not is_null(c, row):
        for k in range(<int> step.count):
            member = &w.steps[w.children[step.first + k]]
            if not is_null(&w.inputs[member.column], row):
                found = member
                set += 1
        if set > 1:
            return failed(w, ERR_MEMBERS, at, set)
    if found == NULL:
        if step.size < 0:
            return failed(w, ERR_NO_VALUE if is_null(c, row) else ERR_NO_MEMBER, at, 0)
        return append_long(w.out, step.size)
    err = append_long(w.out, found.size)
    return err if err else write(w, w.children[found.first], row)


cdef int write(Writing *w, int at, int64_t row) noexcept nogil:
    # Writes the value of step `at`'s column in this row. Returns 0, a code after `failed`, or one of the columns'.
    cdef const Step *step = &w.steps[at]
    cdef int op = step.op, k, err
    cdef const Input *c = &w.inputs[step.column] if step.column >= 0 else NULL
    cdef const Text *text
    cdef uint8_t byte
    if op == OP_UNION:
        return write_union(w, step, c, row, at)
    if op == OP_CONSTANT:
        text = &w.texts[step.size]
        return append(w.out, text.p, text.n) if text.n else 0
    if op == OP_NULL:
        return 0
    if is_null(c, row):
        return failed(w, ERR_NO_VALUE, at, 0)
    if op == OP_RECORD:
        for k in range(<int> step.count):
            err = write(w, w.children[step.first + k], row)
            if err:
                return err
        return 0
    if op == OP_INT or op == OP_LONG:
        return write_number(w, step, c, row, at)
    if op == OP_BYTES or op == OP_FIXED or op == OP_UUID:
        return write_bytes(w, step, c, row, at)
    if op == OP_FLOAT or op == OP_DOUBLE:
        return write_floating(w, step, c, row, at)
    if op == OP_BOOLEAN:
        byte = (c.data[(c.first + row) >> 3] >> ((c.first + row) & 7)) & 1
        return append(w.out, &byte, 1)
    if op == OP_ENUM:
        k = (<const int32_t *> c.data)[c.first + row]
        return failed(w, ERR_NO_SYMBOL, at, 0) if k < 0 else append_long(w.out, k)
    if op == OP_ARRAY or op == OP_MAP:
        return write_items(w, step, c, row)
    if op == OP_DECIMAL or op == OP_FIXED_DECIMAL:
        return write_decimal(w, step, c, row, at)
    return write_duration(w, c.data + (c.first + row) * 16, at)


cdef class Machine(Steps):
    """A program, ready to be carried out on any number of batches. It may be used by several threads."""

    def run(self, columns, int64_t rows, bytes frame):
        """Writes so many rows, each behind `frame`. Returns a binary array of those that could be written, and
        (row, code, step, number) of the others. Raises `OverflowError` where the values have more than 2 GiB."""
        cdef Writing w
        w.steps, w.children, w.texts = self.steps, self.children, self.texts
        return written(&w, columns, rows, frame)
