# Included by _kernel.pyx: from Arrow columns to the bytes of record batches.

cdef enum:
    # Java's DefaultRecord.MAX_RECORD_OVERHEAD: all of a record but key, value, headers and their lengths.
    RECORD_OVERHEAD = 21
    MAX_VARINT = 5

cdef enum:
    APPEND_DONE = 0
    APPEND_FULL = 1
    APPEND_GROW = 2

cdef struct Source:
    # A binary column to read: 32-bit offsets, or 64-bit ones where `wide`.
    int present
    int wide
    int64_t first
    const uint8_t *bits
    const int32_t *offsets32
    const int64_t *offsets64
    const uint8_t *data
    const uint8_t *end

cdef struct In:
    int64_t rows
    Source key
    Source value
    const int64_t *timestamp
    int64_t default_timestamp
    const int64_t *delta
    # headers: a list per row of keys and values
    int has_headers
    int64_t headers_first
    const uint8_t *headers_bits
    const int32_t *headers_offsets
    Source header_key
    Source header_value

cdef struct Batch_:
    # The batch that a Writer makes; its records begin behind the place of the header.
    uint8_t *p
    int64_t cap
    int64_t used
    int64_t count
    int64_t last_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t need


cdef inline int64_t read_source(Source *s, int64_t i, const uint8_t **p) noexcept nogil:
    """The length of value i, -1 for null; p is set to its bytes."""
    cdef int64_t begin
    if not s.present:
        return -1
    i += s.first
    if s.bits != NULL and not (s.bits[i >> 3] >> (i & 7)) & 1:
        return -1
    if s.wide:
        begin = s.offsets64[i]
        p[0] = s.data + begin
        return s.offsets64[i + 1] - begin
    begin = s.offsets32[i]
    p[0] = s.data + begin
    return s.offsets32[i + 1] - begin


cdef inline void header_range(In *r, int64_t i, int64_t *lo, int64_t *hi) noexcept nogil:
    """The headers of row i; none for a null list."""
    lo[0] = 0
    hi[0] = 0
    if not r.has_headers:
        return
    i += r.headers_first
    if r.headers_bits != NULL and not (r.headers_bits[i >> 3] >> (i & 7)) & 1:
        return
    lo[0] = r.headers_offsets[i]
    hi[0] = r.headers_offsets[i + 1]


cdef inline int64_t sized(int64_t length) noexcept nogil:
    """Bytes of a field with its length in front; length -1 is null."""
    return ka_varint_size(length) + (length if length > 0 else 0)


cdef int64_t headers_size(In *r, int64_t lo, int64_t hi) noexcept nogil:
    cdef int64_t i, size = ka_varint_size(hi - lo)
    cdef const uint8_t *p = NULL
    for i in range(lo, hi):
        size += sized(read_source(&r.header_key, i, &p)) + sized(read_source(&r.header_value, i, &p))
    return size


cdef inline int64_t bound(In *r, int64_t i) noexcept nogil:
    """The most bytes that row i may take as a record of any batch, as Java estimates it."""
    cdef const uint8_t *p = NULL
    cdef int64_t h, lo, hi, length, size = RECORD_OVERHEAD + 2 * MAX_VARINT
    length = read_source(&r.key, i, &p)
    size += length if length > 0 else 0
    length = read_source(&r.value, i, &p)
    size += length if length > 0 else 0
    if r.has_headers:
        header_range(r, i, &lo, &hi)
        for h in range(lo, hi):
            length = read_source(&r.header_key, h, &p)
            size += 2 * MAX_VARINT + (length if length > 0 else 0)
            length = read_source(&r.header_value, h, &p)
            size += length if length > 0 else 0
    return size


cdef inline uint8_t *put_field(uint8_t *q, const uint8_t *src, int64_t length, const uint8_t *src_end) noexcept nogil:
    q = ka_put_varint(q, length)
    if length > 0:
        ka_copy(q, src, length, src_end)
        q += length
    return q


cdef inline uint8_t *begin_record(Batch_ *b, int64_t body, int64_t timestamp, int64_t delta) noexcept nogil:
    """Writes what stands before the key."""
    cdef uint8_t *q = ka_put_varint(b.p + b.used, body)
    q[0] = 0
    q = ka_put_varint(q + 1, <int64_t>(<unsigned long long>timestamp - <unsigned long long>b.base_timestamp))
    return ka_put_varint(q, delta)


cdef inline int make_room(Batch_ *b, int64_t body, int64_t timestamp, int64_t limit) noexcept nogil:
    """Whether a record of `body` bytes is to be appended now: DONE, FULL, or GROW with what is needed."""
    cdef int64_t total = ka_varint_size(body) + body
    if b.count > 0 and b.used + total > limit:
        return APPEND_FULL
    if b.used + total + KA_SLACK > b.cap:
        b.need = b.used + total + KA_SLACK
        return APPEND_GROW
    return APPEND_DONE


cdef inline void end_record(Batch_ *b, uint8_t *q, int64_t timestamp, int64_t delta) noexcept nogil:
    if b.count == 0 or timestamp > b.max_timestamp:
        b.max_timestamp = timestamp
    b.last_delta = delta
    b.count += 1
    b.used = q - b.p


cdef int append_rows(Batch_ *b, In *r, const int32_t *order, int64_t *lo, int64_t hi, int64_t limit) noexcept nogil:
    """Appends the rows order[lo..hi] (lo..hi without an order) until the batch is full."""
    cdef int64_t row, key, value, h, h_lo = 0, h_hi = 0, body, timestamp, delta, base
    cdef const uint8_t *key_p = NULL
    cdef const uint8_t *value_p = NULL
    cdef const uint8_t *p = NULL
    cdef uint8_t *q
    cdef int status
    while lo[0] < hi:
        row = order[lo[0]] if order != NULL else lo[0]
        timestamp = r.timestamp[row] if r.timestamp != NULL else r.default_timestamp
        delta = r.delta[row] if r.delta != NULL else b.last_delta + 1
        base = timestamp if b.count == 0 else b.base_timestamp
        key = read_source(&r.key, row, &key_p)
        value = read_source(&r.value, row, &value_p)
        body = 1 + ka_varint_size(<int64_t>(<unsigned long long>timestamp - <unsigned long long>base))
        body += ka_varint_size(delta) + sized(key) + sized(value)
        if r.has_headers:
            header_range(r, row, &h_lo, &h_hi)
            body += headers_size(r, h_lo, h_hi)
        else:
            body += 1
        status = make_room(b, body, timestamp, limit)
        if status != APPEND_DONE:
            return status
        b.base_timestamp = base
        q = begin_record(b, body, timestamp, delta)
        q = put_field(q, key_p, key, r.key.end)
        q = put_field(q, value_p, value, r.value.end)
        q = ka_put_varint(q, h_hi - h_lo)
        for h in range(h_lo, h_hi):
            key = read_source(&r.header_key, h, &p)
            q = put_field(q, p, key, r.header_key.end)
            value = read_source(&r.header_value, h, &p)
            q = put_field(q, p, value, r.header_value.end)
        end_record(b, q, timestamp, delta)
        lo[0] += 1
    return APPEND_DONE


cdef void take_source(Source *s, column) except *:
    """Points at the buffers of a batch.BinaryColumn; None is a column of nulls."""
    memset(s, 0, sizeof(Source))
    if column is None:
        return
    s.present = 1
    s.wide = column.wide
    s.first = column.first
    if column.validity is not None:
        s.bits = <const uint8_t *>address(column.validity)
    if s.wide:
        s.offsets64 = <const int64_t *>address(column.offsets)
    else:
        s.offsets32 = <const int32_t *>address(column.offsets)
    if column.data is not None:
        s.data = <const uint8_t *>address(column.data)
        s.end = s.data + <int64_t>column.data.size


cdef class Rows:
    """Arrow columns as rows to be written. Holds the buffers that it points at."""

    cdef In data
    cdef object columns
    cdef int64_t[::1] timestamps, deltas

    def __cinit__(self, columns, int64_t default_timestamp):
        headers = columns.headers
        memset(&self.data, 0, sizeof(In))
        self.columns = columns
        self.data.rows = columns.rows
        self.data.default_timestamp = default_timestamp
        take_source(&self.data.key, columns.key)
        take_source(&self.data.value, columns.value)
        if columns.timestamps is not None and columns.rows:
            self.timestamps = columns.timestamps
            self.data.timestamp = &self.timestamps[0]
        if columns.deltas is not None and columns.rows:
            self.deltas = columns.deltas
            self.data.delta = &self.deltas[0]
        if headers is not None:
            self.data.has_headers = 1
            self.data.headers_first = headers.first
            if headers.validity is not None:
                self.data.headers_bits = <const uint8_t *>address(headers.validity)
            self.data.headers_offsets = <const int32_t *>address(headers.offsets)
            take_source(&self.data.header_key, headers.key)
            take_source(&self.data.header_value, headers.value)

    def __len__(self):
        return self.data.rows

    def largest(self):
        """(row, bytes) of the row that may take the most bytes, by Java's estimate; (-1, 0) without rows."""
        cdef int64_t i, size, most = 0, row = -1
        with nogil:
            for i in range(self.data.rows):
                size = bound(&self.data, i)
                if size > most:
                    most = size
                    row = i
        return row, most

    def spread(self, int32_t[::1] partitions, int32_t count):
        """Sets the partition of each row that has a key, as Java's partitioner does; -1 for those without."""
        cdef int64_t i, length, without = 0
        cdef const uint8_t *p = NULL
        with nogil:
            for i in range(self.data.rows):
                length = read_source(&self.data.key, i, &p)
                if length >= 0:
                    partitions[i] = ka_murmur2(p, length) % count
                else:
                    partitions[i] = -1
                    without += 1
        return without

    def stick(self, int32_t[::1] partitions, int64_t lo, int32_t partition, int64_t budget):
        """Gives rows without a partition (-1), from row lo on, to `partition` until their bytes reach `budget`.

        Returns (the row to go on from, bytes given).
        """
        cdef int64_t spent = 0, rows = self.data.rows
        with nogil:
            while lo < rows and spent < budget:
                if partitions[lo] < 0:
                    partitions[lo] = partition
                    spent += bound(&self.data, lo)
                lo += 1
        return lo, spent


def group(const int32_t[::1] partitions, int32_t[::1] order, int64_t[::1] bounds):
    """Sorts rows by their partitions, each from 0 to len(bounds) - 2, keeping the order within each.

    Partition p has the rows order[bounds[p]:bounds[p + 1]].
    """
    cdef int64_t i, n = partitions.shape[0], total = 0, count
    cdef int64_t groups = bounds.shape[0] - 1
    with nogil:
        bounds[:] = 0
        for i in range(n):
            bounds[partitions[i]] += 1
        for i in range(groups):
            count = bounds[i]
            bounds[i] = total
            total += count
        for i in range(n):
            order[bounds[partitions[i]]] = <int32_t>i
            bounds[partitions[i]] += 1
        for i in range(groups, 0, -1):
            bounds[i] = bounds[i - 1]
        bounds[0] = 0


def murmur2(bytes key not None):
    """Java's hash of a key, without its sign bit."""
    return ka_murmur2(<const uint8_t *><const char *>key, len(key))


cdef class Writer:
    """One batch of format v2 under construction: records are appended, then it is sealed with a header."""

    cdef Batch_ b
    cdef Slab slab
    cdef readonly int codec

    def __cinit__(self, int64_t capacity):
        self.slab = Slab(max(capacity, 2 * HEADER_SIZE) + KA_SLACK)
        memset(&self.b, 0, sizeof(Batch_))
        self.b.p = self.slab.p
        self.b.cap = self.slab.size
        self.b.used = HEADER_SIZE
        self.b.last_delta = -1
        self.b.base_timestamp = -1
        self.b.max_timestamp = -1

    @property
    def used(self):
        """Bytes so far, the header's included."""
        return self.b.used

    @property
    def count(self):
        """Records so far."""
        return self.b.count

    cdef void grow(self) except *:
        self.slab.grow(max(self.b.need, 2 * self.b.cap))
        self.b.p = self.slab.p
        self.b.cap = self.slab.size

    def append(self, Rows rows, const int32_t[::1] order, int64_t lo, int64_t hi, int64_t limit):
        """Appends rows order[lo:hi], or rows lo to hi where `order` is None, as long as the batch stays within
        `limit` bytes; an empty batch takes one row of any size. Returns the place in the order to go on from."""
        cdef const int32_t *p = NULL
        cdef int status = APPEND_GROW
        if order is not None and order.shape[0]:
            p = &order[0]
        while status == APPEND_GROW:
            with nogil:
                status = append_rows(&self.b, &rows.data, p, &lo, hi, limit)
            if status == APPEND_GROW:
                self.grow()
        return lo

    def append_one(self, bytes key, bytes value, headers, int64_t timestamp, int64_t limit):
        """Appends a record; `headers` are (bytes, bytes or None), or None. False where the batch is too full."""
        cdef int64_t key_length = -1 if key is None else len(key)
        cdef int64_t value_length = -1 if value is None else len(value)
        cdef int64_t base = timestamp if self.b.count == 0 else self.b.base_timestamp
        cdef int64_t delta = self.b.last_delta + 1
        cdef int64_t body = 1 + ka_varint_size(timestamp - base) + ka_varint_size(delta)
        cdef const uint8_t *p
        cdef uint8_t *q
        cdef int status
        body += sized(key_length) + sized(value_length)
        if headers:
            body += ka_varint_size(len(headers))
            for name, content in headers:
                body += sized(len(name)) + sized(-1 if content is None else len(content))
        else:
            body += 1
        status = make_room(&self.b, body, timestamp, limit)
        if status == APPEND_FULL:
            return False
        if status == APPEND_GROW:
            self.grow()
        self.b.base_timestamp = base
        q = begin_record(&self.b, body, timestamp, delta)
        q = put_bytes(q, key)
        q = put_bytes(q, value)
        q = ka_put_varint(q, len(headers) if headers else 0)
        if headers:
            for name, content in headers:
                q = put_bytes(q, name)
                q = put_bytes(q, content)
        end_record(&self.b, q, timestamp, delta)
        return True

    def body(self):
        """A view of the records as they are now. Not to be held while more are appended."""
        return memoryview(self.slab.buffer).cast("B")[HEADER_SIZE:self.b.used]

    def pack(self, packed, int codec):
        """Puts the compressed records in the place of the records; nothing may be appended afterwards."""
        cdef const uint8_t[::1] source = packed
        cdef int64_t size = source.shape[0]
        cdef Slab slab = Slab(HEADER_SIZE + size + KA_SLACK)
        if size:
            memcpy(slab.p + HEADER_SIZE, &source[0], size)
        self.slab = slab
        self.b.p = slab.p
        self.b.cap = slab.size
        self.b.used = HEADER_SIZE + size
        self.codec = codec

    def seal(
        self,
        int64_t producer_id,
        int64_t producer_epoch,
        int64_t base_sequence,
        int64_t base_offset=0,
        int64_t last_delta=-1,
        int64_t attributes=0,
        int64_t leader_epoch=-1,
    ):
        """Writes the header and its checksum; returns a view of the whole batch. May be done again with other values.

        `last_delta` is the last record's unless given; `attributes` come beside the codec's.
        """
        cdef uint8_t *p = self.b.p
        cdef int64_t used = self.b.used
        if last_delta < 0:
            last_delta = max(0, self.b.last_delta)
        ka_store64(p, base_offset)
        ka_store32(p + 8, used - LOG_OVERHEAD)
        ka_store32(p + 12, leader_epoch)
        p[MAGIC_AT] = 2
        ka_store16(p + ATTRIBUTES_AT, attributes | self.codec)
        ka_store32(p + 23, last_delta)
        ka_store64(p + 27, self.b.base_timestamp)
        ka_store64(p + 35, self.b.max_timestamp)
        ka_store64(p + 43, producer_id)
        ka_store16(p + 51, producer_epoch)
        ka_store32(p + 53, base_sequence)
        ka_store32(p + 57, self.b.count)
        with nogil:
            ka_store32(p + 17, ka_crc32c(p + ATTRIBUTES_AT, used - ATTRIBUTES_AT))
        return memoryview(self.slab.buffer).cast("B")[:used]


cdef inline uint8_t *put_bytes(uint8_t *q, bytes value) except NULL:
    cdef int64_t length
    if value is None:
        return ka_put_varint(q, -1)
    length = len(value)
    q = ka_put_varint(q, length)
    memcpy(q, <const char *>value, length)
    return q + length


def rows(columns, int64_t default_timestamp):
    """A batch.RowColumns as rows to be written; rows without a timestamp get the default, in milliseconds."""
    return Rows(columns, default_timestamp)


def writer(int64_t capacity):
    """An empty batch with room for about `capacity` bytes; it grows where that is not enough."""
    return Writer(capacity)
