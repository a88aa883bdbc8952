# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Fetch requests and small responses, exchanged with a broker without the interpreter: see `steady_fetch`, which has the terms.

Nothing that comes from the broker is trusted: every length is checked before it is used.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from os import strerror

from kafka_actors.fetch.messages import FetchedPartition, FetchReply

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void *into, size_t size, int flags)
    ssize_t send(int fd, const void *data, size_t size, int flags)
    enum: MSG_WAITALL

cdef extern from "../records/_native.h" nogil:
    int64_t ka_load64(const uint8_t *p)
    int32_t ka_load32(const uint8_t *p)
    int16_t ka_load16(const uint8_t *p)
    void ka_store32(uint8_t *p, int64_t v)
    void ka_store64(uint8_t *p, int64_t v)

cdef extern from * nogil:
    """
    #include <sys/socket.h>
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0 /* Python has SIGPIPE ignored */
    #endif
    #define KA_TAKE_ALL(stack) __atomic_exchange_n(stack, NULL, __ATOMIC_ACQ_REL)
    #define KA_PUSH(stack, seen, item) __atomic_compare_exchange_n(stack, seen, item, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)
    #define KA_GET(flag) __atomic_load_n(flag, __ATOMIC_ACQUIRE)
    #define KA_SET(flag, value) __atomic_store_n(flag, value, __ATOMIC_RELEASE)
    """
    Answer *take_all "KA_TAKE_ALL"(Answer **stack)
    bint push "KA_PUSH"(Answer **stack, Answer **seen, Answer *item)
    enum: MSG_NOSIGNAL
    int get "KA_GET"(int *flag)
    void set "KA_SET"(int *flag, int value)

cdef enum:
    TOPIC_ID = 16
    PARTITION = 33 # bytes of a partition in a request: FetchPartition of versions 13 to 18, without tagged fields
    BATCH_HEADER = 61
    BATCH_OVERHEAD = 12
    LEAST_BATCH = 49
    MAGIC = 2
    CORRELATION_AT = 8
    FIXED = 13 # bytes between the maximum of a response and the topics: isolation level, session id and epoch, and itself
    MOST_EPOCH = 0x7FFFFFFF
    MOST_CORRELATION_ID = 0x7FFFFFFF
    SMALL_BYTES = 64 * 1024 # as steady_fetch.SMALL_BYTES

cdef int64_t MOST_BASE = 0x7FFFFFFFFFFFFFFF - 0x80000000

# As in steady_fetch.End.
cdef enum:
    END_OF_TERMS = 0
    END_LARGE = 1
    END_OTHER = 2

# Failures, which become exceptions.
cdef enum:
    FAIL_CLOSED = -1
    FAIL_MEMORY = -2
    FAIL_SYSTEM = -16 # less the system's error number


cdef struct Known:
    # A partition of the session, and where its next records begin.
    uint8_t topic_id[TOPIC_ID]
    int32_t number
    int32_t leader_epoch
    int32_t max_bytes
    bint changed
    int64_t offset
    int64_t moved # the number of the advance that was its last, 0 for none
    int64_t seen # the number of the response that named it last

cdef struct Part:
    # One partition of an answer; its records are in the response.
    int32_t known
    int64_t fetch_offset
    int64_t next_offset
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t at
    int64_t size

cdef struct Answer:
    # A response; its partitions and its bytes follow in the same block.
    Answer *next
    int64_t size
    int64_t parts
    double seconds


cdef inline Part *parts_of(Answer *answer) noexcept nogil:
    return <Part *>(answer + 1)


cdef inline const uint8_t *bytes_of(Answer *answer) noexcept nogil:
    return <const uint8_t *>(parts_of(answer) + answer.parts)


cdef void free_all(Answer *answer) noexcept nogil:
    """Frees an answer, and those behind it."""
    cdef Answer *following
    while answer != NULL:
        following = answer.next
        free(answer)
        answer = following


cdef inline double now() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return t.tv_sec + t.tv_nsec / 1e9


cdef inline const uint8_t *read_varint(const uint8_t *p, const uint8_t *end, int64_t *out) noexcept nogil:
    """Reads an unsigned varint of at most 32 bits; NULL where it is cut off or longer."""
    cdef uint64_t value = 0
    cdef int shift = 0
    while p < end and shift < 35:
        value |= <uint64_t>(p[0] & 0x7F) << shift
        if not p[0] & 0x80:
            out[0] = <int64_t>value
            return p + 1 if value <= 0x7FFFFFFF else NULL
        p += 1
        shift += 7
    return NULL


cdef inline uint8_t *put_varint(uint8_t *p, uint32_t value) noexcept nogil:
    while value > 0x7F:
        p[0] = <uint8_t>(value | 0x80)
        value >>= 7
        p += 1
    p[0] = <uint8_t>value
    return p + 1


cdef inline const uint8_t *no_tags(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Passes over an empty set of tagged fields; NULL where there is one."""
    return p + 1 if p != NULL and p < end and p[0] == 0 else NULL


cdef int64_t offset_behind(const uint8_t *p, int64_t left) noexcept nogil:
    """The offset behind the last complete batch of format v2; -1 where there is none, or something else."""
    cdef int64_t length, base, found = -1
    while left >= BATCH_HEADER:
        length = ka_load32(p + 8)
        base = ka_load64(p)
        if length < LEAST_BATCH or p[16] != MAGIC or base < 0 or base > MOST_BASE or ka_load32(p + 23) < 0:
            return -1
        if left - BATCH_OVERHEAD < length:
            break
        found = max(found, base + ka_load32(p + 23) + 1)
        p += BATCH_OVERHEAD + length
        left -= BATCH_OVERHEAD + length
    return found


cdef class FetchLoop:
    """A fetch session while only records come. `run` is called in one thread; `drain` and `interrupt` in any.

    `partitions`: those of the session, each with its next fetch offset. `request`: a request without partitions, in the session's version,
    which ends with `tail` bytes behind its topics. `wake`, to be set before, is called in the thread of `run` when answers can be
    drained.
    """

    cdef readonly int64_t exchanges
    cdef readonly int64_t requests
    cdef readonly double waited_s # for the response to the last request
    cdef double _began
    cdef list _partitions
    cdef public object wake
    cdef int _broker
    cdef int64_t _sequence
    cdef bytes _template
    cdef const uint8_t *_start # of the template
    cdef int64_t _head, _tail, _session_id, _epoch, _correlation_id
    cdef Known *_known
    cdef int32_t *_places # of partitions, by the hash of topic id and number; -1 for none
    cdef int32_t *_changed
    cdef int64_t _mask, _count, _changes, _moves
    cdef uint8_t *_out
    cdef int64_t _room
    cdef uint8_t *_in
    cdef Answer *_answers
    cdef int _interrupted

    def __cinit__(self, list partitions not None, bytes request not None, int64_t tail, int broker, int64_t sequence):
        cdef int64_t size = 8, i
        cdef bytes topic_id
        self._partitions = partitions
        self.wake = None
        self._broker = broker
        self._sequence = sequence
        self._template = request
        self._start = <const uint8_t *>request
        self._tail = tail
        self._count = len(partitions)
        if len(request) < CORRELATION_AT + FIXED + tail + 8 or tail < 1:
            raise ValueError("not a Fetch request")
        self._head = len(request) - tail - 1
        self._correlation_id = ka_load32(<const uint8_t *>request + CORRELATION_AT)
        self._session_id = ka_load32(<const uint8_t *>request + self._head - 8)
        self._epoch = ka_load32(<const uint8_t *>request + self._head - 4)
        while size < 2 * self._count:
            size *= 2
        self._mask = size - 1
        self._known = <Known *>calloc(max(1, self._count), sizeof(Known))
        self._places = <int32_t *>malloc(size * sizeof(int32_t))
        self._changed = <int32_t *>malloc(max(1, self._count) * sizeof(int32_t))
        self._in = <uint8_t *>malloc(SMALL_BYTES)
        if self._known == NULL or self._places == NULL or self._changed == NULL or self._in == NULL:
            raise MemoryError
        for i in range(size):
            self._places[i] = -1
        for i, want in enumerate(partitions):
            topic_id = want.topic_id
            if len(topic_id) != TOPIC_ID:
                raise ValueError("a topic's id has 16 bytes")
            memcpy(self._known[i].topic_id, <const uint8_t *>topic_id, TOPIC_ID)
            self._known[i].number = want.partition
            self._known[i].leader_epoch = want.leader_epoch
            self._known[i].max_bytes = want.max_bytes
            self._known[i].offset = want.fetch_offset
            self._places[self._place(<const uint8_t *>topic_id, want.partition)] = <int32_t>i

    def __dealloc__(self):
        free_all(self._answers)
        free(self._known)
        free(self._places)
        free(self._changed)
        free(self._out)
        free(self._in)

    cdef int64_t _place(self, const uint8_t *topic_id, int32_t number) noexcept nogil:
        """The place of a partition among `_places`, or the free one that it would get."""
        cdef uint64_t mixed = <uint64_t>ka_load64(topic_id) ^ <uint64_t>ka_load64(topic_id + 8)
        cdef int64_t at
        cdef Known *known
        mixed = (mixed + <uint32_t>number) * <uint64_t>0x9E3779B97F4A7C15
        at = <int64_t>(mixed >> 32) & self._mask
        while self._places[at] >= 0:
            known = &self._known[self._places[at]]
            if known.number == number and memcmp(known.topic_id, topic_id, TOPIC_ID) == 0:
                break
            at = (at + 1) & self._mask
        return at

    def interrupt(self):
        """Has `run` end before its next request."""
        set(&self._interrupted, 1)

    def run(self, int fd, bytes request not None, int64_t credit, int64_t least_credit, double most_s, double timeout_s):
        """Sends `request` and goes on from its response, until something else than a few records comes, less than `least_credit` of the
        `credit` in bytes is left, `most_s` seconds are over, or `interrupt` was called; where it was called before, nothing is sent.
        `timeout_s`: the socket's limit for one call.

        Returns the reason (steady_fetch.End) and, of a large response, its length, else the response that is left to the caller. Raises
        `OSError` and, where the broker has closed the connection, `EOFError`.
        """
        cdef int64_t length = 0
        cdef const uint8_t *first = <const uint8_t *>request
        cdef int64_t size = len(request)
        cdef int end
        with nogil:
            end = self._loop(fd, first, size, credit, least_credit, now() + most_s, timeout_s, &length)
            self.waited_s = now() - self._began
        if self._answers != NULL:
            self.wake()
        if end == FAIL_CLOSED:
            raise EOFError
        if end == FAIL_MEMORY:
            raise MemoryError
        if end < 0:
            raise OSError(FAIL_SYSTEM - end, strerror(FAIL_SYSTEM - end))
        if end == END_OTHER:
            return end, length, PyBytes_FromStringAndSize(<const char *>self._in, length)
        return end, length, b""

    cdef int _loop(self, int fd, const uint8_t *request, int64_t size, int64_t credit, int64_t least, double until, double timeout_s, int64_t *length) noexcept nogil:
        cdef uint8_t head[4]
        cdef int status
        cdef int64_t parts
        if get(&self._interrupted):
            return END_OF_TERMS
        while True:
            self._began = now()
            status = send_all(fd, request, size)
            if status:
                return status
            self.requests += 1
            if self.exchanges:
                with gil:
                    self.wake()
            status = receive_all(fd, head, 4, timeout_s)
            if status:
                return status
            length[0] = ka_load32(head)
            if length[0] < 4 or length[0] > SMALL_BYTES:
                return END_LARGE
            status = receive_all(fd, self._in, length[0], timeout_s)
            if status:
                return status
            parts = self._check(length[0])
            if parts < 0 or self._epoch >= MOST_EPOCH:
                return END_OTHER
            if not self._take(length[0], parts, now() - self._began):
                return FAIL_MEMORY
            credit -= length[0]
            if get(&self._interrupted) or credit < least or now() >= until:
                return END_OF_TERMS
            size = self._next_request(credit)
            if size < 0:
                return FAIL_MEMORY
            request = self._out

    cdef int64_t _check(self, int64_t size) noexcept nogil:
        """The number of partitions in the response; -1 where it isn't the plain answer to the request: nothing but records, which lead on,
        of partitions of this session."""
        cdef const uint8_t *p = self._in
        cdef const uint8_t *end = p + size
        cdef const uint8_t *topic_id
        cdef int64_t topics = 0, numbers = 0, length = 0, count = 0
        cdef int32_t place
        cdef Known *known
        if ka_load32(p) != self._correlation_id:
            return -1
        p = no_tags(p + 4, end)
        if p == NULL or end - p < 10 or ka_load32(p) or ka_load16(p + 4) or ka_load32(p + 6) != self._session_id:
            return -1
        p = read_varint(p + 10, end, &topics)
        while p != NULL and topics > 1:
            if end - p < TOPIC_ID:
                return -1
            topic_id = p
            p = read_varint(p + TOPIC_ID, end, &numbers)
            while p != NULL and numbers > 1:
                if end - p < 31 or ka_load16(p + 4):
                    return -1
                place = self._places[self._place(topic_id, ka_load32(p))]
                if place < 0 or self._known[place].seen == self.exchanges + 1:
                    return -1
                known = &self._known[place]
                known.seen = self.exchanges + 1
                p = read_varint(p + 30, end, &length)
                if p == NULL or length > 1 or end - p < 4 or ka_load32(p) != -1: # aborted transactions, another replica
                    return -1
                p = read_varint(p + 4, end, &length)
                if p == NULL or length - 1 > end - p:
                    return -1
                if length > 1:
                    if offset_behind(p, length - 1) <= known.offset:
                        return -1
                    p += length - 1
                p = no_tags(p, end)
                count += 1
                numbers -= 1
            p = no_tags(p, end)
            topics -= 1
        return count if no_tags(p, end) == end else -1

    cdef bint _take(self, int64_t size, int64_t parts, double seconds) noexcept nogil:
        """Takes a response that was checked: advances its partitions, and queues the answer. False where there is no memory."""
        cdef Answer *answer = <Answer *>malloc(sizeof(Answer) + parts * sizeof(Part) + size)
        cdef const uint8_t *p = self._in
        cdef const uint8_t *topic_id
        cdef int64_t topics = 0, numbers = 0, length = 0
        cdef Part *part
        cdef Known *known
        if answer == NULL:
            return False
        answer.size = size
        answer.parts = parts
        answer.seconds = seconds
        part = parts_of(answer)
        p = read_varint(p + 15, p + size, &topics)
        while topics > 1:
            topic_id = p
            p = read_varint(p + TOPIC_ID, self._in + size, &numbers)
            while numbers > 1:
                part.known = self._places[self._place(topic_id, ka_load32(p))]
                known = &self._known[part.known]
                part.high_watermark = ka_load64(p + 6)
                part.last_stable_offset = ka_load64(p + 14)
                p = read_varint(p + 30, self._in + size, &length)
                p = read_varint(p + 4, self._in + size, &length)
                part.at = p - self._in
                part.size = max(0, length - 1)
                part.fetch_offset = known.offset
                if part.size:
                    known.offset = offset_behind(p, part.size)
                    self._moves += 1
                    known.moved = self._moves
                    if not known.changed:
                        known.changed = True
                        self._changed[self._changes] = part.known
                        self._changes += 1
                part.next_offset = known.offset
                p += part.size + 1
                part += 1
                numbers -= 1
            p += 1
            topics -= 1
        memcpy(<uint8_t *>bytes_of(answer), self._in, size)
        answer.next = self._answers
        while not push(&self._answers, &answer.next, answer):
            pass
        self.exchanges += 1
        self._epoch += 1
        self._correlation_id = (self._correlation_id + 1) & MOST_CORRELATION_ID
        return True

    cdef int64_t _next_request(self, int64_t credit) noexcept nogil:
        """Makes the next request, which names the partitions that have advanced. Returns its size; -1 where there is no memory."""
        cdef int64_t head = self._head, size = head + 1 + self._tail, i, topic
        cdef int64_t most = size + 8 + self._changes * (PARTITION + TOPIC_ID + 8)
        cdef uint8_t *p
        cdef uint8_t *grown
        cdef Known *known
        cdef int64_t topics = 0
        if most > self._room:
            grown = <uint8_t *>realloc(self._out, 2 * most)
            if grown == NULL:
                return -1
            self._out = grown
            self._room = 2 * most
        memcpy(self._out, self._start, head)
        ka_store32(self._out + CORRELATION_AT, self._correlation_id)
        ka_store32(self._out + head - FIXED, credit)
        ka_store32(self._out + head - 4, self._epoch)
        for i in range(self._changes):
            topics += self._begins_topic(i)
        p = put_varint(self._out + head, <uint32_t>(topics + 1))
        i = 0
        while i < self._changes:
            memcpy(p, self._known[self._changed[i]].topic_id, TOPIC_ID)
            topic = i + 1
            while topic < self._changes and not self._begins_topic(topic):
                topic += 1
            p = put_varint(p + TOPIC_ID, <uint32_t>(topic - i + 1))
            while i < topic:
                known = &self._known[self._changed[i]]
                known.changed = False
                ka_store32(p, known.number)
                ka_store32(p + 4, known.leader_epoch)
                ka_store64(p + 8, known.offset)
                ka_store32(p + 16, -1)
                ka_store64(p + 20, -1)
                ka_store32(p + 28, known.max_bytes)
                p[32] = 0
                p += PARTITION
                i += 1
            p[0] = 0
            p += 1
        self._changes = 0
        memcpy(p, self._start + head + 1, self._tail)
        p += self._tail
        ka_store32(self._out, p - self._out - 4)
        return p - self._out

    cdef bint _begins_topic(self, int64_t i) noexcept nogil:
        return i == 0 or memcmp(self._known[self._changed[i]].topic_id, self._known[self._changed[i - 1]].topic_id, TOPIC_ID) != 0

    def drain(self):
        """Returns the answers since the last call, in order: each a `FetchReply` with the record bytes of its partitions."""
        cdef Answer *answer
        cdef Answer *following
        cdef Answer *first = NULL
        cdef list found = []
        if self._answers == NULL:
            return ()
        answer = take_all(&self._answers)
        while answer != NULL: # the newest comes first
            following = answer.next
            answer.next = first
            first = answer
            answer = following
        try:
            answer = first
            while answer != NULL:
                found.append(self._answer(answer))
                answer = answer.next
        finally:
            free_all(first)
        return found

    cdef tuple _answer(self, Answer *answer):
        cdef Part *part = parts_of(answer)
        cdef list partitions = [], records = []
        cdef int64_t i
        for i in range(answer.parts):
            want = self._partitions[part.known]
            partitions.append(
                FetchedPartition(
                    want.topic, want.partition, want.epoch, part.fetch_offset, part.next_offset, 0, part.high_watermark, part.last_stable_offset, (), -1, -1, -1, part.size
                )
            )
            records.append(PyBytes_FromStringAndSize(<const char *>bytes_of(answer) + part.at, part.size))
            part += 1
        return FetchReply(self._broker, self._sequence, partitions, answer.size, 0, 0, answer.seconds, True), records

    def advanced(self):
        """Returns the partitions that have advanced, in the order of their last advances: their places in `partitions`, and their next
        fetch offsets."""
        cdef int64_t i
        moved = sorted([(self._known[i].moved, i) for i in range(self._count) if self._known[i].moved])
        return [(i, self._known[i].offset) for _, i in moved]


cdef int send_all(int fd, const uint8_t *data, int64_t size) noexcept nogil:
    cdef ssize_t sent
    while size:
        sent = send(fd, data, size, MSG_NOSIGNAL)
        if sent < 0:
            if errno == EINTR:
                continue
            return FAIL_SYSTEM - errno
        data += sent
        size -= sent
    return 0


cdef int receive_all(int fd, uint8_t *into, int64_t size, double timeout_s) noexcept nogil:
    cdef ssize_t received
    cdef int64_t left = size
    cdef double began = now()
    while left:
        received = recv(fd, into + size - left, left, MSG_WAITALL)
        if received < 0:
            if errno == EINTR:
                continue
            return FAIL_SYSTEM - errno
        if received == 0:
            return FAIL_CLOSED
        left -= received
        if left and now() - began >= timeout_s:
            return FAIL_SYSTEM - EAGAIN
    return 0
