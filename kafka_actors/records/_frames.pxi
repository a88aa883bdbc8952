# Frames of codecs, walked over by their headers: what the libraries that unpack them don't check. `_reference_frames.py`
# is the twin.

cdef enum:
    LZ4_FIXED = 0xC3  # of a frame's flags: version and what is reserved
    LZ4_VERSION = 0x40
    LZ4_INDEPENDENT = 0x20
    LZ4_BLOCK_CHECKSUMS = 0x10
    LZ4_CONTENT_SIZE = 0x08
    LZ4_CONTENT_CHECKSUM = 0x04
    LZ4_SIZES_RESERVED = 0x8F

cdef unsigned int LZ4_MAGIC = 0x184D2204
cdef unsigned int LZ4_STORED = 0x80000000
cdef unsigned int ZSTD_MAGIC = 0xFD2FB528
cdef unsigned int ZSTD_SKIPPABLE = 0x184D2A50


def xxh32(data):
    """xxHash-32 with seed 0: the checksum in LZ4 frames."""
    cdef Py_buffer view
    cdef unsigned int found
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    found = ka_xxh32(<const uint8_t *>view.buf, view.len)
    PyBuffer_Release(&view)
    return found


def lz4_blocks(data):
    """Checks the header and the blocks of an LZ4 frame as Java's reader does, up to the first end mark.

    Returns (largest size of a block, whether each stands on its own, position behind the end mark, and for each block
    its position and its size, negative where it is not compressed: flat, as a frame may have very many). Raises
    ValueError.
    """
    cdef Py_buffer view
    cdef object blocks = array("q")
    cdef const uint8_t *p
    cdef int64_t size, pos, longest, trailer, length
    cdef unsigned int word
    cdef int flags
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        size = view.len
        if size < 7 or ka_load32_little(p) != LZ4_MAGIC:
            raise ValueError("no LZ4 frame")
        flags = p[4]
        if flags & LZ4_FIXED != LZ4_VERSION or p[5] & LZ4_SIZES_RESERVED or p[5] < 0x40:
            raise ValueError(f"an LZ4 frame with flags {flags} and block size {p[5]}")
        pos = 14 if flags & LZ4_CONTENT_SIZE else 6
        if pos >= size or p[pos] != (ka_xxh32(p + 4, pos - 4) >> 8 & 0xFF):
            raise ValueError("the checksum of the LZ4 frame's header is wrong")
        pos += 1
        longest = (<int64_t>1) << (8 + 2 * (p[5] >> 4))
        trailer = 4 if flags & LZ4_BLOCK_CHECKSUMS else 0
        while True:
            if size - pos < 4:
                raise ValueError("the LZ4 frame ends too early")
            word = ka_load32_little(p + pos)
            pos += 4
            length = <int64_t>(word & ~LZ4_STORED)
            if not length:
                break
            if length > longest or length + trailer > size - pos:
                raise ValueError(f"an LZ4 block of {length} bytes in {size - pos}, where {longest} are the most")
            if trailer and ka_xxh32(p + pos, length) != ka_load32_little(p + pos + length):
                raise ValueError("the checksum of an LZ4 block is wrong")
            blocks.append(pos)
            blocks.append(length if word == length else -length)
            pos += length + trailer
        if flags & LZ4_CONTENT_CHECKSUM and size - pos < 4:
            raise ValueError("the LZ4 frame ends too early")
    finally:
        PyBuffer_Release(&view)
    return longest, bool(flags & LZ4_INDEPENDENT), pos, blocks


cdef int64_t zstd_frame_end(const uint8_t *p, int64_t pos, int64_t size) noexcept nogil:
    """The position behind the frame that begins at `pos`, by the lengths of its blocks; beyond `size` if it is cut."""
    cdef int descriptor
    cdef int64_t header = 0
    if size - pos < 5:
        return size + 1
    descriptor = p[pos + 4]
    pos += 5 + (0 if descriptor & 0x20 else 1)  # the size of the window
    if descriptor & 3:
        pos += 1 << ((descriptor & 3) - 1)  # a dictionary
    if descriptor >> 6:
        pos += 1 << (descriptor >> 6)  # the size of the content
    elif descriptor & 0x20:
        pos += 1
    while not header & 1:
        if size - pos < 3:
            return size + 1
        header = p[pos] | p[pos + 1] << 8 | p[pos + 2] << 16
        pos += 3 + (1 if (header >> 1 & 3) == 1 else header >> 3)  # 1: one byte, repeated
    return pos + (descriptor & 0x04)  # a checksum of 4 bytes


def zstd_end(data):
    """The position behind the last whole zstd frame.

    As with Java's reader a frame that is cut off counts as padding behind a whole one. Raises ValueError for other
    bytes, and where no frame is whole.
    """
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef int64_t end = 0, behind, size, left
    cdef unsigned int magic, known
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        size = view.len
        while end < size:
            left = size - end
            magic = p[end]
            if left > 1:
                magic |= <unsigned int>p[end + 1] << 8
            if left > 2:
                magic |= <unsigned int>p[end + 2] << 16
            if left > 3:
                magic |= <unsigned int>p[end + 3] << 24
            known = 0xFFFFFFFF if left > 3 else (<unsigned int>1 << (8 * left)) - 1
            if magic == ZSTD_MAGIC & known:
                behind = zstd_frame_end(p, end, size)
            elif magic & ~<unsigned int>0xF == ZSTD_SKIPPABLE & known:
                behind = end + 8 + ka_load32_little(p + end + 4) if left >= 8 else size + 1
            else:
                raise ValueError("bytes that are no zstd frame")
            if behind > size:
                break
            end = behind
        if not end and size:
            raise ValueError("the zstd frame ends too early")
    finally:
        PyBuffer_Release(&view)
    return end
