# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The Avro kernel: carries out a program on encoded values, without the GIL and without an object for each value.

`_reference_avro.py` is its twin. Every length is checked before it is used.
"""

include "_columns.pxi"

include "_avro_program.pxi"

cdef int MOST_DEPTH = 200
cdef int64_t MOST_EMPTY = 1000000
cdef int64_t LEAST = -0x7FFFFFFFFFFFFFFF - 1
cdef int64_t LOW_BITS = (<int64_t> 1 << 32) - 1

cdef struct Reading:
    # The program, the columns, and where the value is read.
    const Step *steps
    const int *children
    const Text *texts
    Column *nodes
    int *kids
    const uint8_t *p
    const uint8_t *end
    int depth
    int64_t empty        # items so far that took no bytes
    int at               # the step that failed
    int64_t number       # what was found there


cdef inline int failed(Reading *r, int code, int at, int64_t number) noexcept nogil:
    r.at = at
    r.number = number
    return code


cdef inline int read_long(Reading *r, int64_t *out) noexcept nogil:
    cdef const uint8_t *p = r.p
    cdef uint64_t value, byte
    cdef int shift
    if p == r.end:
        return ERR_SHORT
    if p[0] < 0x80:
        r.p = p + 1
        out[0] = <int64_t> ((p[0] >> 1) ^ (-<int64_t> (p[0] & 1)))
        return 0
    value = p[0] & 0x7F
    shift = 7
    p += 1
    while True:
        if p == r.end:
            return ERR_SHORT
        byte = p[0]
        p += 1
        if shift == 63 and byte > 1:
            return ERR_VARINT
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    r.p = p
    out[0] = <int64_t> ((value >> 1) ^ (<uint64_t> 0 - (value & 1)))
    return 0


cdef int put_decimal(Column *c, const uint8_t *p, int64_t n, int digits) noexcept nogil:
    # A big-endian number in two's complement, of at most `digits` digits, as Arrow's little-endian one.
    cdef uint8_t made[32]
    cdef uint8_t nines[32]
    cdef uint8_t sign = 0xFF if n and p[0] & 0x80 else 0
    cdef int width = c.width, k, j
    cdef unsigned int carry, part
    while n > width:
        if p[0] != sign:
            return ERR_DECIMAL
        p += 1
        n -= 1
    for k in range(width):
        made[k] = p[n - 1 - k] if k < n else sign
    if (made[width - 1] & 0x80) != (sign & 0x80):
        return ERR_DECIMAL
    # All nines: the largest magnitude, little-endian. A negative v is within it where ~v, which is |v| - 1, is below it.
    memset(nines, 0, 32)
    for k in range(digits):
        carry = 9
        for j in range(width):
            part = nines[j] * 10 + carry
            nines[j] = <uint8_t> part
            carry = part >> 8
    k = width - 1
    while k >= 0 and made[k] ^ sign == nines[k]:
        k -= 1
    if (made[k] ^ sign) > nines[k] if k >= 0 else sign != 0:
        return ERR_DECIMAL
    return put_fixed(c, made)


cdef int put_number(Column *c, int store, int64_t v) noexcept nogil:
    if store == AS_INT64:
        return put_i64(c, v)
    if store == AS_INT32:
        return put_i32(c, <int32_t> v)
    if store == AS_DOUBLE:
        return put_f64(c, <double> v)
    return put_f32(c, <float> v)


cdef int put_uuid(Column *c, const uint8_t *p) noexcept nogil:
    cdef const char *hexa = "0123456789abcdef"
    cdef uint8_t text[36]
    cdef int k, at = 0
    for k in range(16):
        if k == 4 or k == 6 or k == 8 or k == 10:
            text[at] = 45
            at += 1
        text[at] = hexa[p[k] >> 4]
        text[at + 1] = hexa[p[k] & 15]
        at += 2
    return put_binary(c, text, 36)


cdef int put_duration(Column *c, const uint8_t *p) noexcept nogil:
    # Months, days and milliseconds as unsigned numbers, to months, days and nanoseconds.
    cdef uint32_t months, days, millis
    cdef uint8_t made[16]
    cdef int64_t nanos
    memcpy(&months, p, 4)
    memcpy(&days, p + 4, 4)
    memcpy(&millis, p + 8, 4)
    if months > 0x7FFFFFFF or days > 0x7FFFFFFF:
        return ERR_RANGE
    nanos = <int64_t> millis * 1000000
    memcpy(made, &months, 4)
    memcpy(made + 4, &days, 4)
    memcpy(made + 8, &nanos, 8)
    return put_fixed(c, made)


cdef int items(Reading *r, const Step *step, int at) noexcept nogil:
    # Blocks of an array's or a map's items.
    cdef int64_t count, size, k
    cdef const uint8_t *before
    cdef int err, child, children = <int> step.count
    while True:
        err = read_long(r, &count)
        if err:
            return failed(r, err, at, 0)
        if count == 0:
            return 0
        if count < 0:
            err = read_long(r, &size)
            if err:
                return failed(r, err, at, 0)
            if size < 0 or count == LEAST:
                return failed(r, ERR_LENGTH, at, size if size < 0 else count)
            count = -count
        for k in range(count):
            before = r.p
            for child in range(children):
                err = run(r, r.children[step.first + child])
                if err:
                    return err
            if r.p == before:
                r.empty += 1
                if r.empty > MOST_EMPTY:
                    return failed(r, ERR_EMPTY, at, 0)


cdef int run(Reading *r, int at) noexcept nogil:
    # Reads one value by step `at`. Returns 0, or a code after `failed`.
    cdef const Step *step = &r.steps[at]
    cdef int op = step.op, column = step.column, err = 0, k, children = <int> step.count
    cdef int64_t number, n
    cdef Column *c = &r.nodes[column] if column >= 0 else NULL
    cdef const Text *text
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef float single
    cdef double double_
    if op == OP_INT or op == OP_LONG:
        err = read_long(r, &number)
        if err == 0 and op == OP_INT and (number > 0x7FFFFFFF or number < -0x80000000LL):
            return failed(r, ERR_RANGE, at, number)
        if err == 0 and c != NULL:
            err = put_number(c, step.store, number)
    elif op == OP_BYTES or op == OP_DECIMAL:
        err = read_long(r, &n)
        if err:
            return failed(r, err, at, 0)
        if n < 0:
            return failed(r, ERR_LENGTH, at, n)
        if r.end - r.p < n:
            return failed(r, ERR_SHORT, at, 0)
        p = r.p
        r.p += n
        if c != NULL:
            if op == OP_DECIMAL:
                err = put_decimal(c, p, n, <int> step.size)
            elif step.store == AS_TEXT and not utf8_valid(p, n):
                err = ERR_UTF8
            else:
                err = put_binary(c, p, n)
    elif op == OP_DOUBLE:
        if r.end - r.p < 8:
            return failed(r, ERR_SHORT, at, 0)
        if c != NULL:
            memcpy(&double_, r.p, 8)
            err = put_f64(c, double_)
        r.p += 8
    elif op == OP_FLOAT:
        if r.end - r.p < 4:
            return failed(r, ERR_SHORT, at, 0)
        if c != NULL:
            memcpy(&single, r.p, 4)
            err = put_f64(c, single) if step.store == AS_DOUBLE else put_f32(c, single)
        r.p += 4
    elif op == OP_RECORD:
        if r.depth >= MOST_DEPTH:
            return failed(r, ERR_DEPTH, at, 0)
        r.depth += 1
        for k in range(children):
            err = run(r, r.children[step.first + k])
            if err:
                return err
        r.depth -= 1
        if c != NULL:
            err = close_struct(c)
    elif op == OP_UNION:
        err = read_long(r, &number)
        if err:
            return failed(r, err, at, 0)
        if number < 0 or number >= step.count:
            return failed(r, ERR_BRANCH, at, number)
        return run(r, r.children[step.first + number])
    elif op == OP_NULL:
        if c != NULL:
            err = put_null(r.nodes, r.kids, column)
    elif op == OP_ENUM:
        err = read_long(r, &number)
        if err:
            return failed(r, err, at, 0)
        if number < 0 or number >= step.count:
            return failed(r, ERR_SYMBOL, at, number)
        text = &r.texts[step.first + number]
        if text.n < 0:
            return failed(r, ERR_SYMBOL, at, number)
        if c != NULL:
            err = put_binary(c, text.p, text.n)
    elif op == OP_BOOLEAN:
        if r.p == r.end:
            return failed(r, ERR_SHORT, at, 0)
        if r.p[0] > 1:
            return failed(r, ERR_BOOLEAN, at, r.p[0])
        if c != NULL:
            err = put_bool(c, r.p[0])
        r.p += 1
    elif op == OP_ARRAY or op == OP_MAP:
        if r.depth >= MOST_DEPTH:
            return failed(r, ERR_DEPTH, at, 0)
        r.depth += 1
        err = items(r, step, at)
        if err:
            return err
        r.depth -= 1
        if c != NULL:
            err = close_list(r.nodes, r.kids, column)
    elif op == OP_CONSTANT:
        text = &r.texts[step.size]
        p, end = r.p, r.end
        r.p, r.end = text.p, text.p + text.n
        err = run(r, r.children[step.first])
        r.p, r.end = p, end
        return err
    elif op == OP_MEMBER:
        for k in range(c.children):
            if k == step.size:
                err = run(r, r.children[step.first])
                if err:
                    return err
            elif put_null(r.nodes, r.kids, r.kids[c.first_child + k]):
                return failed(r, ERR_MEMORY, at, 0)
        err = close_struct(c)
    elif op == OP_FAIL:
        return failed(r, ERR_REFUSED, at, 0)
    else:  # of a fixed size
        n = step.size & LOW_BITS
        if r.end - r.p < n:
            return failed(r, ERR_SHORT, at, 0)
        if c != NULL:
            if op == OP_FIXED:
                err = put_fixed(c, r.p)
            elif op == OP_FIXED_DECIMAL:
                err = put_decimal(c, r.p, n, <int> (step.size >> 32))
            elif op == OP_UUID:
                err = put_uuid(c, r.p)
            else:
                err = put_duration(c, r.p)
        r.p += n
    if err:
        return failed(r, err, at, 0)
    return 0


cdef class Machine(Steps):
    """A program, ready to be carried out on any number of batches. It may be used by several threads."""

    def run(self, array, const int32_t[::1] rows, int64_t skipped):
        """Reads the values with these numbers, each from its byte `skipped` on. Returns a batch of those that could be read, and
        (position in `rows`, code, step, number) of the others. No value may be null."""
        cdef Values values = Values(array)
        cdef Columns columns = Columns(self.program.schema)
        cdef Reading r
        cdef int64_t count = rows.shape[0], k, good = 0
        cdef int err
        cdef list failures = []
        columns.reserve(count)
        r.steps, r.children, r.texts = self.steps, self.children, self.texts
        r.nodes, r.kids = columns.nodes, columns.kids
        with nogil:
            for k in range(count):
                r.p = values.begin(rows[k]) + skipped
                r.end = values.end(rows[k])
                r.depth = 0
                r.empty = 0
                err = failed(&r, ERR_SHORT, 0, 0) if r.p > r.end else run(&r, 0)
                if err == 0 and r.p != r.end:
                    err = failed(&r, ERR_TRAILING, 0, r.end - r.p)
                if err == 0:
                    good += 1
                    continue
                truncate(r.nodes, r.kids, 0, good)
                with gil:
                    failures.append((k, err, r.at, r.number))
        return columns.finish(), failures
