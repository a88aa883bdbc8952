# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The record kernel: from the bytes of fetched batches to Arrow buffers and back, without the GIL while it runs.

`_reference.py` is its twin: the same functions with the same results. Every length is checked before it is used.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from array import array

import pyarrow as pa

from kafka_actors.base.batches import SCHEMA
from kafka_actors.records.batch import BinaryBuffers, ColumnBuffers, HeaderBuffers

cdef extern from "_native.h" nogil:
    enum: KA_SLACK
    enum: KA_PREFIX
    int64_t ka_load64(const uint8_t *p)
    int32_t ka_load32(const uint8_t *p)
    short ka_load16(const uint8_t *p)
    unsigned int ka_crc32c(const uint8_t *p, size_t n)
    unsigned int ka_crc32(const uint8_t *p, size_t n)
    void ka_native_init()
    int ka_use_crc_hardware(int wanted)
    void ka_copy(uint8_t *dst, const uint8_t *src, int64_t n, const uint8_t *src_end)
    int ka_is_ascii(const uint8_t *p, int64_t n)
    const uint8_t *ka_varint(const uint8_t *p, const uint8_t *end, int32_t *out)
    const uint8_t *ka_varint_ahead(const uint8_t *p, int32_t *out)
    const uint8_t *ka_varlong(const uint8_t *p, const uint8_t *end, int64_t *out)
    int ka_micros(int64_t base, int64_t delta, int64_t *out)
    void ka_store16(uint8_t *p, int64_t v)
    void ka_store32(uint8_t *p, int64_t v)
    void ka_store64(uint8_t *p, int64_t v)
    int64_t ka_varint_size(int64_t v)
    uint8_t *ka_put_varint(uint8_t *p, int64_t v)
    unsigned int ka_load32_little(const uint8_t *p)
    unsigned int ka_xxh32(const uint8_t *p, int64_t n)
    int32_t ka_murmur2(const uint8_t *p, int64_t n)
    enum: KA_COLUMNS
    enum: KA_KEY
    enum: KA_VALUE
    enum: KA_TOPIC
    enum: KA_PARTITION
    enum: KA_OFFSET
    enum: KA_TIMESTAMP
    enum: KA_TIMESTAMP_TYPE
    ctypedef struct ArrowArray "struct ArrowArray":
        void (*release)(ArrowArray *)
    ctypedef struct ka_small:
        ArrowArray batch
        const void *buffers[KA_COLUMNS][3]
    void ka_small_arrays(ka_small *s, int64_t rows, int64_t null_keys, int64_t null_values, const uint8_t *zeros)

cdef enum:
    LOG_OVERHEAD = 12
    MAGIC_AT = 16
    ATTRIBUTES_AT = 21
    HEADER_SIZE = 61
    MIN_LENGTH_V0 = 14
    MIN_LENGTH_V1 = 22
    MIN_LENGTH_V2 = 49
    MIN_RECORD = 7
    CODEC_MASK = 0x07
    TIMESTAMP_TYPE_BIT = 0x08
    CONTROL_BIT = 0x20
    LOG_APPEND_TIME = 1

cdef int64_t MAX_BASE_OFFSET = 0x7FFFFFFFFFFFFFFF - 0x80000000
cdef int64_t MAX_BINARY = 0x7FFFFFFF
cdef int64_t LITTLE_BYTES = 65536

# As in batch.Scan and batch.Fill; GROW never leaves this module.
cdef enum:
    SCAN_END = 0
    SCAN_MORE = 1
    SCAN_LEGACY = 2
    SCAN_BAD_LENGTH = 3
    SCAN_BAD_MAGIC = 4
    SCAN_BAD_CRC = 5
    SCAN_BAD_HEADER = 6

cdef enum:
    FILL_DONE = 0
    FILL_FULL = 1
    FILL_TRUNCATED = 2
    FILL_BAD_FIELD = 3
    FILL_BAD_HEADER_COUNT = 4
    FILL_BAD_OFFSET = 5
    FILL_TRAILING = 6
    FILL_BAD_TIMESTAMP = 7
    FILL_BAD_CRC = 8
    FILL_BAD_FORMAT = 9
    FILL_GROW = 100

# One row of a batch table: batch.Field in the same order.
cdef struct Batch:
    int64_t source
    int64_t pos
    int64_t end
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t count
    int64_t attributes
    int64_t producer_id
    int64_t leader_epoch
    int64_t last_delta
    int64_t timestamp_type
    int64_t start
    int64_t magic

cdef struct Bytes:
    # A binary column under construction: `used` bytes of `cap`, and its nulls.
    uint8_t *bits
    int32_t *offsets
    uint8_t *data
    int64_t used
    int64_t cap
    int64_t nulls

cdef struct Out:
    int64_t rows
    int64_t rows_cap
    int64_t max_rows
    int64_t spent
    int64_t max_bytes
    int64_t next_offset
    int64_t leader_epoch
    int64_t *offset
    int64_t *timestamp
    int32_t *timestamp_type
    Bytes key
    Bytes value
    # headers: list offsets and validity per row, the rest per header
    int has_headers
    int64_t header_rows_null
    uint8_t *header_bits
    int32_t *header_offsets
    int64_t headers
    int64_t headers_cap
    Bytes header_key
    Bytes header_value
    int non_ascii
    # what the record that did not fit needs
    int64_t need_key
    int64_t need_value
    int64_t need_headers
    int64_t need_header_key
    int64_t need_header_value

cdef struct Record:
    int64_t timestamp_delta
    int64_t offset_delta
    int32_t key_length
    int32_t value_length
    int32_t headers
    int64_t header_key_bytes
    int64_t header_value_bytes
    const uint8_t *key
    const uint8_t *value
    const uint8_t *first_header
    const uint8_t *end


cdef inline void clear_bit(uint8_t *bits, int64_t i) noexcept nogil:
    bits[i >> 3] &= <uint8_t>(~(1 << (i & 7)))


cdef inline int parse_headers(Record *r, const uint8_t *q) noexcept nogil:
    """Checks every header of a record and adds up their bytes."""
    cdef int32_t i, length
    r.first_header = q
    for i in range(r.headers):
        q = ka_varint(q, r.end, &length)
        if q == NULL:
            return FILL_TRUNCATED
        if length < 0 or length > r.end - q:
            return FILL_BAD_FIELD
        q += length
        r.header_key_bytes += length
        q = ka_varint(q, r.end, &length)
        if q == NULL:
            return FILL_TRUNCATED
        if length < -1 or length > r.end - q:
            return FILL_BAD_FIELD
        if length > 0:
            q += length
            r.header_value_bytes += length
    return FILL_DONE if q == r.end else FILL_TRAILING


cdef inline int parse_prefix(Record *r, const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Reads up to the length of the key, byte by byte checked."""
    cdef int32_t length, offset_delta
    cdef const uint8_t *q = ka_varint(p, end, &length)
    if q == NULL:
        return FILL_TRUNCATED
    if length < MIN_RECORD - 1:
        return FILL_BAD_FIELD
    if length > end - q:
        return FILL_TRUNCATED
    r.end = q + length
    q = ka_varlong(q + 1, r.end, &r.timestamp_delta)
    if q == NULL:
        return FILL_TRUNCATED
    q = ka_varint(q, r.end, &offset_delta)
    if q == NULL:
        return FILL_TRUNCATED
    r.offset_delta = offset_delta
    r.key = ka_varint(q, r.end, &r.key_length)
    return FILL_TRUNCATED if r.key == NULL else FILL_DONE


cdef inline int parse_prefix_ahead(Record *r, const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The same where KA_PREFIX bytes can be read at p: one check at the end instead of one a byte."""
    cdef int32_t length, offset_delta
    cdef const uint8_t *q = ka_varint_ahead(p, &length)
    if q == NULL:
        return FILL_TRUNCATED
    if length < MIN_RECORD - 1:
        return FILL_BAD_FIELD
    if length > end - q:
        return FILL_TRUNCATED
    r.end = q + length
    q = ka_varlong(q + 1, end, &r.timestamp_delta)
    if q == NULL:
        return FILL_TRUNCATED
    q = ka_varint_ahead(q, &offset_delta)
    if q == NULL:
        return FILL_TRUNCATED
    r.offset_delta = offset_delta
    r.key = ka_varint_ahead(q, &r.key_length)
    return FILL_TRUNCATED if r.key == NULL or r.key > r.end else FILL_DONE


cdef inline int parse(Record *r, const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Reads one record that begins at p; nothing is trusted."""
    cdef const uint8_t *q
    cdef int status
    if end - p >= KA_PREFIX:
        status = parse_prefix_ahead(r, p, end)
    else:
        status = parse_prefix(r, p, end)
    if status != FILL_DONE:
        return status
    q = r.key
    if r.key_length < -1 or r.key_length > r.end - q:
        return FILL_BAD_FIELD
    if r.key_length > 0:
        q += r.key_length
    q = ka_varint(q, r.end, &r.value_length)
    if q == NULL:
        return FILL_TRUNCATED
    if r.value_length < -1 or r.value_length > r.end - q:
        return FILL_BAD_FIELD
    r.value = q
    if r.value_length > 0:
        q += r.value_length
    r.headers = 0
    r.header_key_bytes = 0
    r.header_value_bytes = 0
    if q + 1 == r.end and q[0] == 0:
        return FILL_DONE
    q = ka_varint(q, r.end, &r.headers)
    if q == NULL:
        return FILL_TRUNCATED
    if r.headers == 0:
        return FILL_DONE if q == r.end else FILL_TRAILING
    if r.headers < 0 or r.headers > (r.end - q) // 2:
        return FILL_BAD_HEADER_COUNT
    return parse_headers(r, q)


cdef int parse_field(const uint8_t **q, const uint8_t *end, int32_t *length, const uint8_t **field) noexcept nogil:
    """Reads a key or a value of the old formats: its length in 4 bytes, -1 for null, and the bytes."""
    if end - q[0] < 4:
        return FILL_TRUNCATED
    length[0] = ka_load32(q[0])
    field[0] = q[0] + 4
    if length[0] < -1 or length[0] > end - field[0]:
        return FILL_BAD_FIELD
    q[0] = field[0] + max(length[0], 0)
    return FILL_DONE


cdef int parse_message(Record *r, const uint8_t *p, const uint8_t *end, int64_t magic) noexcept nogil:
    """Reads one uncompressed message of format v0 or v1 that begins at p; nothing is trusted."""
    cdef const uint8_t *q
    cdef int64_t length
    cdef int status
    if end - p <= MAGIC_AT + 1:
        return FILL_TRUNCATED
    length = ka_load32(p + 8)
    if p[MAGIC_AT] != magic or p[MAGIC_AT + 1] & CODEC_MASK:
        return FILL_BAD_FORMAT
    if length < (MIN_LENGTH_V1 if magic else MIN_LENGTH_V0):
        return FILL_BAD_FIELD
    if length > end - p - LOG_OVERHEAD:
        return FILL_TRUNCATED
    r.end = p + LOG_OVERHEAD + length
    if ka_crc32(p + MAGIC_AT, length - 4) != <unsigned int>ka_load32(p + LOG_OVERHEAD):
        return FILL_BAD_CRC
    r.offset_delta = ka_load64(p)
    r.timestamp_delta = ka_load64(p + MAGIC_AT + 2) if magic else -1
    q = p + MAGIC_AT + (10 if magic else 2)
    status = parse_field(&q, r.end, &r.key_length, &r.key)
    if status == FILL_DONE:
        status = parse_field(&q, r.end, &r.value_length, &r.value)
    r.headers = 0
    r.header_key_bytes = 0
    r.header_value_bytes = 0
    return FILL_TRAILING if status == FILL_DONE and q != r.end else status


cdef inline void put(Bytes *column, int64_t row, const uint8_t *src, int64_t length, const uint8_t *src_end) noexcept nogil:
    """Appends one value to a binary column that has room for it; length -1 is null."""
    if length >= 0:
        ka_copy(column.data + column.used, src, length, src_end)
        column.used += length
    else:
        clear_bit(column.bits, row)
        column.nulls += 1
    column.offsets[row + 1] = <int32_t>column.used


cdef void put_headers(Out *o, Record *r, const uint8_t *src_end) noexcept nogil:
    """Appends the headers of a record that `parse` has checked."""
    cdef const uint8_t *q = r.first_header
    cdef int32_t i, length
    for i in range(r.headers):
        q = ka_varint(q, r.end, &length)
        if not ka_is_ascii(q, length):
            o.non_ascii = 1
        put(&o.header_key, o.headers, q, length, src_end)
        q = ka_varint(q + length, r.end, &length)
        put(&o.header_value, o.headers, q, length, src_end)
        if length > 0:
            q += length
        o.headers += 1


cdef inline bint fits(Out *o, Record *r) noexcept nogil:
    """Whether the columns have room for one more record; else says what it needs."""
    if (
        o.rows < o.rows_cap
        and <int64_t>r.key_length + KA_SLACK <= o.key.cap - o.key.used
        and <int64_t>r.value_length + KA_SLACK <= o.value.cap - o.value.used
        and (
            r.headers == 0
            or (
                o.has_headers
                and r.headers <= o.headers_cap - o.headers
                and r.header_key_bytes + KA_SLACK <= o.header_key.cap - o.header_key.used
                and r.header_value_bytes + KA_SLACK <= o.header_value.cap - o.header_value.used
            )
        )
    ):
        return True
    o.need_key = <int64_t>r.key_length + KA_SLACK
    o.need_value = <int64_t>r.value_length + KA_SLACK
    o.need_headers = r.headers
    o.need_header_key = r.header_key_bytes + KA_SLACK if r.headers else 0
    o.need_header_value = r.header_value_bytes + KA_SLACK if r.headers else 0
    return False


cdef int fill_batch(Out *o, Batch *b, const uint8_t *base, const uint8_t *src_end) noexcept nogil:
    """Decodes the records of one batch, from its cursor to its end or until the chunk is full."""
    cdef const uint8_t *p = base + b.pos
    cdef const uint8_t *end = base + b.end
    cdef int64_t floor = o.next_offset
    cdef int64_t max_delta = b.last_offset - b.base_offset
    cdef int64_t offset, row, size, append_timestamp
    cdef bint append_time = b.timestamp_type == LOG_APPEND_TIME
    cdef bint append_fits = ka_micros(b.max_timestamp, 0, &append_timestamp)
    cdef int64_t magic = b.magic
    cdef int64_t last = b.last_delta
    cdef int status = FILL_DONE
    cdef Record r
    while b.count > 0:
        status = parse(&r, p, end) if magic == 2 else parse_message(&r, p, end, magic)
        if status != FILL_DONE:
            break
        if r.offset_delta <= last or r.offset_delta > max_delta:
            status = FILL_BAD_OFFSET
            break
        offset = b.base_offset + r.offset_delta
        if offset >= floor:
            row = o.rows
            size = r.end - p
            if row >= o.max_rows or (row > 0 and o.spent + size > o.max_bytes):
                status = FILL_FULL
                break
            if not fits(o, &r):
                status = FILL_GROW
                break
            if append_time:
                if not append_fits:
                    status = FILL_BAD_TIMESTAMP
                    break
                o.timestamp[row] = append_timestamp
            elif not ka_micros(b.base_timestamp, r.timestamp_delta, &o.timestamp[row]):
                status = FILL_BAD_TIMESTAMP
                break
            o.offset[row] = offset
            o.timestamp_type[row] = <int32_t>b.timestamp_type
            put(&o.key, row, r.key, r.key_length, src_end)
            put(&o.value, row, r.value, r.value_length, src_end)
            if o.has_headers:
                if r.headers:
                    put_headers(o, &r, src_end)
                else:
                    clear_bit(o.header_bits, row)
                    o.header_rows_null += 1
                o.header_offsets[row + 1] = <int32_t>o.headers
            o.spent += size
            o.rows = row + 1
        last = r.offset_delta
        b.count -= 1
        p = r.end
    b.pos = p - base
    b.last_delta = last
    if status == FILL_DONE and p != end:
        status = FILL_TRAILING
    if b.last_delta >= 0:
        o.leader_epoch = b.leader_epoch
        if b.base_offset + b.last_delta >= o.next_offset:
            o.next_offset = b.base_offset + b.last_delta + 1
    return status


cdef int fill_batches(Out *o, Batch *b, int64_t *lo, int64_t hi, const uint8_t **base, const uint8_t **end) noexcept nogil:
    """Decodes batches lo..hi; lo moves to the batch that was not finished. All rows have one leader epoch."""
    cdef int status
    cdef Batch *one
    while lo[0] < hi:
        one = &b[lo[0]]
        one.source &= 1
        if o.rows and one.leader_epoch != o.leader_epoch:
            return FILL_FULL
        if one.count > 0 and not one.attributes & CONTROL_BIT:
            if one.pos < 0 or one.pos > one.end or one.end > end[one.source] - base[one.source]:
                return FILL_TRUNCATED
            status = fill_batch(o, one, base[one.source], end[one.source])
            if status != FILL_DONE:
                return status
        o.leader_epoch = one.leader_epoch
        if one.last_offset >= o.next_offset:
            o.next_offset = one.last_offset + 1
        lo[0] += 1
    return FILL_DONE


cdef int read_header(Batch *b, const uint8_t *p, int64_t start, int64_t length) noexcept nogil:
    """Fills a table row from a complete v2 batch at p, whose CRC was right."""
    cdef int64_t delta = ka_load32(p + 23)
    b.source = 0
    b.start = start
    b.pos = start + HEADER_SIZE
    b.end = start + LOG_OVERHEAD + length
    b.base_offset = ka_load64(p)
    b.leader_epoch = ka_load32(p + 12)
    b.attributes = ka_load16(p + ATTRIBUTES_AT) & 0xFFFF
    b.base_timestamp = ka_load64(p + 27)
    b.max_timestamp = ka_load64(p + 35)
    b.producer_id = ka_load64(p + 43)
    b.count = ka_load32(p + 57)
    b.last_delta = -1
    b.magic = 2
    b.timestamp_type = LOG_APPEND_TIME if b.attributes & TIMESTAMP_TYPE_BIT else 0
    if b.base_offset < 0 or b.base_offset > MAX_BASE_OFFSET or delta < 0 or b.count < 0:
        return SCAN_BAD_HEADER
    b.last_offset = b.base_offset + delta
    if not b.attributes & CODEC_MASK and b.count > (length - MIN_LENGTH_V2) // MIN_RECORD:
        return SCAN_BAD_HEADER
    return SCAN_MORE


cdef int probe(const uint8_t *p, int64_t left, int64_t *length) noexcept nogil:
    """Looks at the start of a batch: SCAN_MORE for a complete v2 batch."""
    if left < LOG_OVERHEAD:
        return SCAN_END
    length[0] = ka_load32(p + 8)
    if length[0] < MIN_LENGTH_V0:
        return SCAN_BAD_LENGTH
    if left <= MAGIC_AT:
        return SCAN_END
    if p[MAGIC_AT] > 2:
        return SCAN_BAD_MAGIC
    if p[MAGIC_AT] == 2 and length[0] < MIN_LENGTH_V2:
        return SCAN_BAD_LENGTH
    if left - LOG_OVERHEAD < length[0]:
        return SCAN_END
    return SCAN_MORE if p[MAGIC_AT] == 2 else SCAN_LEGACY


cdef int scan_batches(
    const uint8_t *base, int64_t size, int64_t *pos, int64_t limit, Batch *b, int64_t rows, int64_t *n, int64_t *flags, int64_t *count, bint check_crcs
) noexcept nogil:
    """Checks v2 batches from `pos` to `limit` and enters them into `b`, which has `rows` places; counts them, and their records."""
    cdef int64_t length = 0
    cdef int status = SCAN_MORE
    while n[0] < rows and pos[0] < limit:
        status = probe(base + pos[0], size - pos[0], &length)
        if status != SCAN_MORE:
            return status
        if check_crcs and ka_crc32c(base + pos[0] + ATTRIBUTES_AT, length - 9) != <unsigned int>ka_load32(base + pos[0] + 17):
            return SCAN_BAD_CRC
        status = read_header(&b[n[0]], base + pos[0], pos[0], length)
        if status != SCAN_MORE:
            return status
        flags[0] |= b[n[0]].attributes
        count[0] += b[n[0]].count
        pos[0] += LOG_OVERHEAD + length
        n[0] += 1
    return status


def scan(data, int64_t pos, int64_t[:, ::1] table, int64_t span, bint check_crcs=True):
    """Checks v2 batches from `pos` on, their checksums with `check_crcs`, and enters them into `table`, about `span` bytes at a time.

    Returns (batches entered, position behind them, batch.Scan code, OR of their attributes, sum of their counts).
    """
    cdef Py_buffer view
    cdef Batch *b = <Batch *>&table[0, 0]
    cdef int64_t rows = table.shape[0], n = 0, flags = 0, count = 0
    cdef int status
    if table.shape[1] * sizeof(int64_t) != sizeof(Batch):
        raise ValueError("not a batch table")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        status = scan_batches(<const uint8_t *>view.buf, view.len, &pos, pos + span, b, rows, &n, &flags, &count, check_crcs)
    PyBuffer_Release(&view)
    return n, pos, status, flags, count


def messages(data, int64_t pos, int64_t end):
    """Walks over the complete messages of formats v0 and v1 in data[pos:end], which belong to a compressed one.

    Returns (how many, own offset of the last, position behind it); -1 of them where lengths or offsets are impossible.
    """
    cdef Py_buffer view
    cdef const uint8_t *base
    cdef int64_t count = 0, last = -1, length
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    base = <const uint8_t *>view.buf
    end = min(end, <int64_t>view.len)
    pos = max(pos, 0)
    with nogil:
        while end - pos >= LOG_OVERHEAD:
            length = ka_load32(base + pos + 8)
            if length >= MIN_LENGTH_V0 and length > end - pos - LOG_OVERHEAD:
                break
            if length < MIN_LENGTH_V0 or ka_load64(base + pos) <= last:
                count = -1
                break
            last = ka_load64(base + pos)
            count += 1
            pos += LOG_OVERHEAD + length
    PyBuffer_Release(&view)
    return count, last, pos


cdef int64_t offset_behind(const uint8_t *p, int64_t left) noexcept nogil:
    """The offset behind the last complete batch, by headers alone; -1 where there is no complete batch."""
    cdef int64_t length = 0, found = -1, base, delta
    cdef int status
    while True:
        status = probe(p, left, &length)
        if status != SCAN_MORE and status != SCAN_LEGACY:
            return found
        base = ka_load64(p)
        delta = ka_load32(p + 23) if status == SCAN_MORE else 0
        if base < 0 or base > MAX_BASE_OFFSET or delta < 0:
            return found
        if base + delta >= found:
            found = base + delta + 1
        p += LOG_OVERHEAD + length
        left -= LOG_OVERHEAD + length


def next_offset(data):
    """The offset behind the last complete batch, by headers alone; None where there is no complete batch."""
    cdef Py_buffer view
    cdef int64_t found
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    if view.len <= LITTLE_BYTES:  # taking the interpreter back costs more than the work
        found = offset_behind(<const uint8_t *>view.buf, view.len)
    else:
        with nogil:
            found = offset_behind(<const uint8_t *>view.buf, view.len)
    PyBuffer_Release(&view)
    return None if found < 0 else found


def crc32c(data, bint hardware=True):
    """CRC-32C of a buffer; `hardware=False` takes the table, for tests."""
    cdef Py_buffer view
    cdef unsigned int crc
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not hardware:
            ka_use_crc_hardware(0)
        crc = ka_crc32c(<const uint8_t *>view.buf, view.len)
    finally:
        ka_use_crc_hardware(1)
        PyBuffer_Release(&view)
    return crc


cdef uintptr_t address(buffer):
    return <uintptr_t>buffer.address


cdef class Slab:
    """A growing Arrow buffer."""

    cdef object buffer
    cdef uint8_t *p
    cdef int64_t size

    def __cinit__(self, int64_t size):
        self.buffer = pa.allocate_buffer(size, resizable=True)
        self.p = <uint8_t *>address(self.buffer)
        self.size = size

    cdef void grow(self, int64_t size) except *:
        self.buffer.resize(size)
        self.p = <uint8_t *>address(self.buffer)
        self.size = size

    cdef object cut(self, int64_t used):
        """The first `used` bytes; memory is given back where much of it would lie idle."""
        if used < self.size - (self.size >> 2):
            self.buffer.resize(used, shrink_to_fit=True)
        return self.buffer.slice(0, used)


cdef class Bits(Slab):
    """A validity bitmap in which every bit not cleared is set."""

    def __cinit__(self, int64_t size):
        memset(self.p, 0xFF, size)

    cdef void grow(self, int64_t size) except *:
        cdef int64_t old = self.size
        Slab.grow(self, size)
        memset(self.p + old, 0xFF, size - old)


cdef inline int64_t bitmap_bytes(int64_t rows) noexcept nogil:
    return (rows + 7) >> 3


cdef int64_t enough(int64_t cap, int64_t used, int64_t need):
    """A capacity for `need` more bytes: the same, or at least half as much again."""
    if used + need <= cap:
        return cap
    return max(cap + (cap >> 1), used + need)


cdef class Columns:
    """The columns of one chunk under construction: at most `max_rows` records and about `max_bytes` bytes.

    `next_offset` is the first offset wanted; it moves behind everything that was decoded or stepped over.
    """

    cdef Out out
    cdef Slab offset, timestamp, timestamp_type, key_offsets, value_offsets, keys, values
    cdef Bits key_bits, value_bits
    cdef Slab header_offsets, header_key_offsets, header_value_offsets, header_keys, header_values
    cdef Bits header_bits, header_key_bits, header_value_bits

    def __cinit__(self, int64_t next_offset, int64_t max_rows, int64_t max_bytes, int64_t rows_hint, int64_t bytes_hint):
        cdef int64_t rows = max(1, min(rows_hint, max_rows))
        memset(&self.out, 0, sizeof(Out))
        self.out.next_offset = next_offset
        self.out.leader_epoch = -1
        self.out.max_rows = max_rows
        self.out.max_bytes = min(max_bytes, MAX_BINARY)
        self.out.rows_cap = rows
        self.offset = Slab(8 * rows)
        self.timestamp = Slab(8 * rows)
        self.timestamp_type = Slab(4 * rows)
        self.key_offsets = Slab(4 * (rows + 1))
        self.value_offsets = Slab(4 * (rows + 1))
        self.key_bits = Bits(bitmap_bytes(rows))
        self.value_bits = Bits(bitmap_bytes(rows))
        self.out.value.cap = max(256, min(bytes_hint, self.out.max_bytes)) + KA_SLACK
        self.out.key.cap = max(256, self.out.value.cap >> 3)
        self.keys = Slab(self.out.key.cap)
        self.values = Slab(self.out.value.cap)
        (<int32_t *>self.key_offsets.p)[0] = 0
        (<int32_t *>self.value_offsets.p)[0] = 0
        self.point()

    cdef void point(self):
        """Takes over the addresses of the buffers after any of them was allocated or grown."""
        cdef Out *o = &self.out
        o.offset = <int64_t *>self.offset.p
        o.timestamp = <int64_t *>self.timestamp.p
        o.timestamp_type = <int32_t *>self.timestamp_type.p
        o.key.bits = self.key_bits.p
        o.key.offsets = <int32_t *>self.key_offsets.p
        o.key.data = self.keys.p
        o.value.bits = self.value_bits.p
        o.value.offsets = <int32_t *>self.value_offsets.p
        o.value.data = self.values.p
        if o.has_headers:
            o.header_bits = self.header_bits.p
            o.header_offsets = <int32_t *>self.header_offsets.p
            o.header_key.bits = self.header_key_bits.p
            o.header_key.offsets = <int32_t *>self.header_key_offsets.p
            o.header_key.data = self.header_keys.p
            o.header_value.bits = self.header_value_bits.p
            o.header_value.offsets = <int32_t *>self.header_value_offsets.p
            o.header_value.data = self.header_values.p

    cdef void start_headers(self) except *:
        """Called at the first record that has headers: all before it had none."""
        cdef Out *o = &self.out
        cdef int64_t i
        o.headers_cap = max(64, o.need_headers)
        o.header_key.cap = max(1024, o.need_header_key)
        o.header_value.cap = max(1024, o.need_header_value)
        self.header_bits = Bits(bitmap_bytes(o.rows_cap))
        self.header_offsets = Slab(4 * (o.rows_cap + 1))
        self.header_key_bits = Bits(bitmap_bytes(o.headers_cap))
        self.header_value_bits = Bits(bitmap_bytes(o.headers_cap))
        self.header_key_offsets = Slab(4 * (o.headers_cap + 1))
        self.header_value_offsets = Slab(4 * (o.headers_cap + 1))
        self.header_keys = Slab(o.header_key.cap)
        self.header_values = Slab(o.header_value.cap)
        memset(self.header_offsets.p, 0, 4 * (o.rows + 1))
        (<int32_t *>self.header_key_offsets.p)[0] = 0
        (<int32_t *>self.header_value_offsets.p)[0] = 0
        for i in range(o.rows):
            clear_bit(self.header_bits.p, i)
        o.header_rows_null = o.rows
        o.has_headers = 1

    cdef void grow_rows(self) except *:
        cdef Out *o = &self.out
        cdef int64_t rows = min(o.max_rows, enough(o.rows_cap, o.rows, 64))
        if o.rows < o.rows_cap:
            return
        self.offset.grow(8 * rows)
        self.timestamp.grow(8 * rows)
        self.timestamp_type.grow(4 * rows)
        self.key_offsets.grow(4 * (rows + 1))
        self.value_offsets.grow(4 * (rows + 1))
        self.key_bits.grow(bitmap_bytes(rows))
        self.value_bits.grow(bitmap_bytes(rows))
        if o.has_headers:
            self.header_bits.grow(bitmap_bytes(rows))
            self.header_offsets.grow(4 * (rows + 1))
        o.rows_cap = rows

    cdef void grow_headers(self) except *:
        cdef Out *o = &self.out
        cdef int64_t cap = enough(o.headers_cap, o.headers, o.need_headers)
        if cap > o.headers_cap:
            self.header_key_bits.grow(bitmap_bytes(cap))
            self.header_value_bits.grow(bitmap_bytes(cap))
            self.header_key_offsets.grow(4 * (cap + 1))
            self.header_value_offsets.grow(4 * (cap + 1))
            o.headers_cap = cap
        o.header_key.cap = self.grow_bytes(self.header_keys, &o.header_key, o.need_header_key)
        o.header_value.cap = self.grow_bytes(self.header_values, &o.header_value, o.need_header_value)

    cdef int64_t grow_bytes(self, Slab slab, Bytes *column, int64_t need) except -1:
        cdef int64_t cap = enough(column.cap, column.used, need)
        if cap > column.cap:
            slab.grow(cap)
        return cap

    cdef void grow(self) except *:
        """Makes room for the record that did not fit."""
        cdef Out *o = &self.out
        self.grow_rows()
        o.key.cap = self.grow_bytes(self.keys, &o.key, o.need_key)
        o.value.cap = self.grow_bytes(self.values, &o.value, o.need_value)
        if o.need_headers:
            if o.has_headers:
                self.grow_headers()
            else:
                self.start_headers()
        self.point()

    @property
    def rows(self):
        return self.out.rows

    @property
    def next_offset(self):
        return self.out.next_offset

    @property
    def leader_epoch(self):
        return self.out.leader_epoch

    def fill(self, data, scratch, int64_t[:, ::1] table, int64_t lo, int64_t hi):
        """Decodes the batches lo..hi of `table`, whose records lie in `data` (source 0) or `scratch` (source 1).

        Returns (first batch not finished, batch.Fill code). After FULL, `finish` and go on with new columns.
        """
        cdef Py_buffer views[2]
        cdef const uint8_t *base[2]
        cdef const uint8_t *end[2]
        cdef Batch *b = <Batch *>&table[0, 0]
        cdef int status = FILL_GROW
        PyObject_GetBuffer(data, &views[0], PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(scratch, &views[1], PyBUF_SIMPLE)
        except BaseException:
            PyBuffer_Release(&views[0])
            raise
        try:
            base[0] = <const uint8_t *>views[0].buf
            base[1] = <const uint8_t *>views[1].buf
            end[0] = base[0] + views[0].len
            end[1] = base[1] + views[1].len
            while status == FILL_GROW:
                with nogil:
                    status = fill_batches(&self.out, b, &lo, hi, base, end)
                if status == FILL_GROW:
                    self.grow()
        finally:
            PyBuffer_Release(&views[0])
            PyBuffer_Release(&views[1])
        return lo, status

    def finish(self):
        """The Arrow buffers of all rows so far; nothing may be filled in afterwards."""
        cdef Out *o = &self.out
        cdef int64_t rows = o.rows
        return ColumnBuffers(
            rows,
            self.offset.cut(8 * rows),
            self.timestamp.cut(8 * rows),
            self.timestamp_type.cut(4 * rows),
            binary(&o.key, rows, self.key_bits, self.key_offsets, self.keys),
            binary(&o.value, rows, self.value_bits, self.value_offsets, self.values),
            self.finish_headers() if o.has_headers else None,
        )

    cdef object finish_headers(self):
        cdef Out *o = &self.out
        cdef int64_t n = o.headers
        return HeaderBuffers(
            n,
            o.header_rows_null,
            self.header_bits.cut(bitmap_bytes(o.rows)),
            self.header_offsets.cut(4 * (o.rows + 1)),
            binary(&o.header_key, n, self.header_key_bits, self.header_key_offsets, self.header_keys),
            binary(&o.header_value, n, self.header_value_bits, self.header_value_offsets, self.header_values),
            not o.non_ascii,
        )


cdef object binary(Bytes *column, int64_t rows, Bits bits, Slab offsets, Slab data):
    return BinaryBuffers(
        bits.cut(bitmap_bytes(rows)) if column.nulls else None,
        offsets.cut(4 * (rows + 1)),
        data.cut(column.used),
        column.nulls,
    )


def columns(int64_t next_offset, int64_t max_rows, int64_t max_bytes, int64_t rows_hint, int64_t bytes_hint):
    """New columns for one chunk; the hints are what it will probably hold."""
    return Columns(next_offset, max_rows, max_bytes, rows_hint, bytes_hint)


include "_small.pxi"
include "_encode.pxi"
include "_frames.pxi"

ka_native_init()
