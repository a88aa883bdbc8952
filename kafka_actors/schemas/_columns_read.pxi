# Columns as they lie in memory, read by kernels that write values of them. It comes after `_columns.pxi` and the kernel's own `Step` and
# `Text`; the kernel has a function `write`, which writes the value of one step's column in one row.

cdef struct Input:
    # A column as it lies in memory.
    const uint8_t *validity
    const uint8_t *data
    const int32_t *offsets
    int64_t first             # of the slice
    int width                 # bytes of a value
    int empty                 # whether all values are null

cdef struct Writing:
    const Step *steps
    const int *children
    const Text *texts
    const Input *inputs
    Column *out
    int at                    # the step that failed
    int64_t number            # what was found there


cdef inline int failed(Writing *w, int code, int at, int64_t number) noexcept nogil:
    w.at = at
    w.number = number
    return code


cdef inline int is_null(const Input *c, int64_t row) noexcept nogil:
    cdef int64_t at
    if c.validity == NULL:
        return c.empty
    at = c.first + row
    return not (c.validity[at >> 3] >> (at & 7)) & 1


cdef inline int append(Column *out, const uint8_t *p, int64_t n) noexcept nogil:
    cdef int err
    if out.used + n > out.room:
        err = more_bytes(out, n)
        if err:
            return err
    memcpy(out.data + out.used, p, n)
    out.used += n
    return 0


cdef inline int append_varint(Column *out, uint64_t left) noexcept nogil:
    cdef int err
    if out.used + 10 > out.room:
        err = more_bytes(out, 10)
        if err:
            return err
    while left > 0x7F:
        out.data[out.used] = <uint8_t> (left & 0x7F | 0x80)
        out.used += 1
        left >>= 7
    out.data[out.used] = <uint8_t> left
    out.used += 1
    return 0


cdef const uint8_t *address(buffer) except? NULL:
    return <const uint8_t *> <uintptr_t> (0 if buffer is None else buffer.address)


cdef int point(Input *c, array) except -1:
    # Points at a column's buffers, which the array keeps.
    types = pa.types
    kind = array.type
    memset(c, 0, sizeof(Input))
    if types.is_null(kind):
        c.empty = 1
        return 0
    buffers = array.buffers()
    c.first = array.offset
    if array.null_count:
        c.validity = address(buffers[0])
    if types.is_struct(kind):
        return 0
    if types.is_binary(kind) or types.is_string(kind):
        c.offsets = <const int32_t *> address(buffers[1])
        c.data = address(buffers[2])
    elif types.is_list(kind) or types.is_map(kind):
        c.offsets = <const int32_t *> address(buffers[1])
    else:
        c.data = address(buffers[1])
        c.width = 0 if types.is_boolean(kind) else kind.bit_width // 8
    return 0


cdef tuple written(Writing *w, columns, int64_t rows, bytes frame):
    # Writes so many rows, each behind `frame`, by the kernel's own `write`. Returns a binary array of those that could be written, and
    # (row, code, step, number) of the others. Raises OverflowError where the values have more than 2 GiB.
    cdef Columns made = Columns(pa.schema([pa.field("value", pa.binary(), False)]))
    cdef int64_t row
    cdef int err = 0, framed = len(frame), k
    cdef const uint8_t *front = <const uint8_t *> <const char *> frame
    cdef list failures = []
    cdef Input *inputs = <Input *> malloc((len(columns) + 1) * sizeof(Input))
    if inputs == NULL:
        raise MemoryError
    try:
        for k, array in enumerate(columns):
            point(&inputs[k], array)
        made.reserve(rows)
        w.inputs, w.out = inputs, &made.nodes[1]
        with nogil:
            for row in range(rows):
                err = append(w.out, front, framed) if framed else 0
                if err == 0:
                    err = write(w, 0, row)
                if err == 0:
                    err = room_for_one(w.out)
                if err == 0:
                    w.out.offsets[w.out.length + 1] = <int32_t> w.out.used
                    counted(w.out)
                    counted(&made.nodes[0])
                    continue
                if err == ERR_MEMORY or err == ERR_FULL:
                    break
                w.out.used = w.out.offsets[w.out.length]
                with gil:
                    failures.append((row, err, w.at, w.number))
                err = 0
    finally:
        free(inputs)
    if err == ERR_FULL:
        raise OverflowError("the values of a batch have more than 2 GiB: write smaller batches")
    if err:
        raise MemoryError
    return made.finish().column(0), failures
