# A few records that came alone, as a record batch in one step: part of _kernel.pyx.

cdef enum:
    SMALL_BYTES = 4096
    SMALL_PARTS = 8
    SMALL_BATCHES = 8
    ALIGNED = 64


cdef inline uint8_t *cut_off(uint8_t **behind, int64_t size) noexcept nogil:
    """Takes `size` bytes of a block, aligned as Arrow recommends it for buffers."""
    cdef uint8_t *taken = behind[0]
    behind[0] += (size + ALIGNED - 1) & ~<int64_t>(ALIGNED - 1)
    return taken


cdef ka_small *small_block(Out *o, int64_t rows, int64_t size, const uint8_t *topic, int64_t topic_size, int32_t partition) noexcept nogil:
    """Allocates a block for `rows` rows out of `size` bytes, and fills in the columns that are the same in all rows."""
    cdef int64_t counts = 4 * (rows + 1)
    cdef int64_t most = sizeof(ka_small) + 2 * 8 * rows + 2 * 4 * rows + 4 * counts + 2 * bitmap_bytes(rows) + 2 * (size + KA_SLACK) + rows * topic_size
    cdef ka_small *block = <ka_small *>calloc(1, most + 16 * ALIGNED)
    cdef uint8_t *behind
    cdef uint8_t *topics
    cdef int32_t *topic_offsets
    cdef int32_t *partitions
    cdef int64_t i
    if block == NULL:
        return NULL
    behind = <uint8_t *>((<uintptr_t>block + sizeof(ka_small) + ALIGNED - 1) & ~<uintptr_t>(ALIGNED - 1))
    o.rows_cap = rows
    o.offset = <int64_t *>cut_off(&behind, 8 * rows)
    o.timestamp = <int64_t *>cut_off(&behind, 8 * rows)
    o.timestamp_type = <int32_t *>cut_off(&behind, 4 * rows)
    o.key.offsets = <int32_t *>cut_off(&behind, counts)
    o.value.offsets = <int32_t *>cut_off(&behind, counts)
    o.key.bits = cut_off(&behind, bitmap_bytes(rows))
    o.value.bits = cut_off(&behind, bitmap_bytes(rows))
    memset(o.key.bits, 0xFF, bitmap_bytes(rows))
    memset(o.value.bits, 0xFF, bitmap_bytes(rows))
    o.key.cap = o.value.cap = size + KA_SLACK
    o.key.data = cut_off(&behind, o.key.cap)
    o.value.data = cut_off(&behind, o.value.cap)
    partitions = <int32_t *>cut_off(&behind, 4 * rows)
    topic_offsets = <int32_t *>cut_off(&behind, counts)
    topics = cut_off(&behind, rows * topic_size)
    for i in range(rows):
        partitions[i] = partition
        topic_offsets[i + 1] = <int32_t>((i + 1) * topic_size)
        memcpy(topics + i * topic_size, topic, topic_size)
    block.buffers[KA_TOPIC][1] = topic_offsets
    block.buffers[KA_TOPIC][2] = topics
    block.buffers[KA_PARTITION][1] = partitions
    block.buffers[KA_OFFSET][1] = o.offset
    block.buffers[KA_TIMESTAMP][1] = o.timestamp
    block.buffers[KA_TIMESTAMP_TYPE][1] = o.timestamp_type
    block.buffers[KA_KEY][1] = o.key.offsets
    block.buffers[KA_KEY][2] = o.key.data
    block.buffers[KA_VALUE][1] = o.value.offsets
    block.buffers[KA_VALUE][2] = o.value.data
    # The lists of headers: calloc has cleared them.
    o.header_offsets = <int32_t *>cut_off(&behind, counts)
    return block


def small(tuple parts not None, int64_t next_offset, int64_t max_rows, int64_t max_bytes, int64_t without, bytes topic not None, int32_t partition, bint check_crcs=True):
    """Decodes all of `parts` into one record batch; None where they are not small and simple, which is then decoded the general way.

    Simple are complete v2 batches that are right, without compression, headers or attributes of `without`, from `next_offset` on. Returns
    (batch, offset behind it, leader epoch). The interpreter isn't let go: taking it back costs more than the work.
    """
    cdef Py_buffer views[SMALL_PARTS]
    cdef Batch batches[SMALL_PARTS][SMALL_BATCHES]
    cdef int64_t found[SMALL_PARTS]
    cdef int64_t held = 0, size = 0, count = 0, i
    cdef ka_small *block = NULL
    cdef ArrowArray array
    cdef Out o
    if len(parts) > SMALL_PARTS:
        return None
    try:
        for part in parts:
            PyObject_GetBuffer(part, &views[held], PyBUF_SIMPLE)
            size += views[held].len
            held += 1
        if size <= SMALL_BYTES and size <= max_bytes and are_simple(views, batches, found, held, without, &count, check_crcs) and count <= max_rows:
            memset(&o, 0, sizeof(Out))
            o.next_offset = next_offset
            o.leader_epoch = -1
            o.max_rows = max_rows
            o.max_bytes = max_bytes
            block = small_block(&o, count, size, topic, len(topic), partition)
            if block != NULL and not fill_small(&o, views, batches, found, held):
                free(block)
                block = NULL
    finally:
        for i in range(held):
            PyBuffer_Release(&views[i])
    if block == NULL:
        return None
    block.buffers[KA_KEY][0] = o.key.bits if o.key.nulls else NULL
    block.buffers[KA_VALUE][0] = o.value.bits if o.value.nulls else NULL
    ka_small_arrays(block, o.rows, o.key.nulls, o.value.nulls, <const uint8_t *>o.header_offsets)
    array = block.batch  # Arrow moves it out of here, and frees the block where it refuses the batch then
    try:
        batch = pa.RecordBatch._import_from_c(<uintptr_t>&array, SCHEMA)
    except BaseException:
        if array.release != NULL:
            array.release(&array)
        raise
    return batch, o.next_offset, o.leader_epoch


cdef bint are_simple(Py_buffer *views, Batch (*batches)[SMALL_BATCHES], int64_t *found, int64_t parts, int64_t without, int64_t *count, bint check_crcs) noexcept nogil:
    """Whether the parts have simple batches only, and records; enters the batches, and counts their records."""
    cdef int64_t i, pos, flags = 0
    cdef int status
    for i in range(parts):
        pos = found[i] = 0
        status = scan_batches(<const uint8_t *>views[i].buf, views[i].len, &pos, views[i].len, batches[i], SMALL_BATCHES, &found[i], &flags, count, check_crcs)
        if flags & (CODEC_MASK | without) or not (status == SCAN_END or (status == SCAN_MORE and pos == views[i].len)):
            return False
    return count[0] > 0


cdef bint fill_small(Out *o, Py_buffer *views, Batch (*batches)[SMALL_BATCHES], int64_t *found, int64_t parts) noexcept nogil:
    """Decodes the records of the batches into the columns; False where one isn't right, or there is no record to hand out."""
    cdef const uint8_t *base[2]
    cdef const uint8_t *end[2]
    cdef int64_t i, lo
    for i in range(parts):
        base[0] = base[1] = <const uint8_t *>views[i].buf
        end[0] = end[1] = base[0] + views[i].len
        lo = 0
        if fill_batches(o, batches[i], &lo, found[i], base, end) != FILL_DONE:
            return False
    return o.rows > 0
