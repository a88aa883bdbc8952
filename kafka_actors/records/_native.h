/* What the record kernel needs below Cython: CRC-32C at the speed of memory, CRC-32, unaligned big-endian loads,
 * and a copy that avoids a library call for short fields. Nothing here allocates or touches Python. */
#ifndef KAFKA_ACTORS_RECORDS_NATIVE_H
#define KAFKA_ACTORS_RECORDS_NATIVE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KA_CRC_POLYNOMIAL 0x82f63b78u /* Castagnoli, bits reversed */
#define KA_CRC32_POLYNOMIAL 0xedb88320u /* zlib's, bits reversed: the checksum of formats v0 and v1 */
/* Bytes per lane of the interleaved loop; three lanes make one step. The lanes are so close together that the
 * processor still sees one stream to fetch ahead: over bytes that come from memory 21 GB/s, with 1024 it was 8. */
#define KA_LANE 256

/* The longest start of a record up to its key: length, attributes, timestamp, offset, length of the key. */
#define KA_PREFIX 26

/* Bytes that ka_copy may write behind the end of a field: every destination carries that much slack. */
#define KA_SLACK 32

static uint32_t ka_crc_table[8][256];
static uint32_t ka_crc32_table[8][256];
static uint32_t ka_crc_skip_lane[4][256]; /* effect of KA_LANE zero bytes on a CRC, byte by byte */
static int ka_crc_hardware = 0;

/* Signed, so that assigning them to a wider variable keeps the sign. */
static inline int16_t ka_load16(const uint8_t *p) { return (int16_t)(((uint32_t)p[0] << 8) | p[1]); }

static inline int32_t ka_load32(const uint8_t *p) {
    return (int32_t)(((uint32_t)p[0] << 24) | ((uint32_t)p[1] << 16) | ((uint32_t)p[2] << 8) | (uint32_t)p[3]);
}

static inline int64_t ka_load64(const uint8_t *p) {
    return (int64_t)(((uint64_t)(uint32_t)ka_load32(p) << 32) | (uint64_t)(uint32_t)ka_load32(p + 4));
}

static inline uint32_t ka_crc_skip(uint32_t crc) {
    return ka_crc_skip_lane[0][crc & 0xff] ^ ka_crc_skip_lane[1][(crc >> 8) & 0xff] ^
           ka_crc_skip_lane[2][(crc >> 16) & 0xff] ^ ka_crc_skip_lane[3][crc >> 24];
}

/* Eight bytes a step over tables (`slicing by 8`): where the processor has no CRC instruction. */
static uint32_t ka_crc_software(const uint32_t table[8][256], uint32_t crc, const uint8_t *p, size_t n) {
    while (n >= 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = table[7][low & 0xff] ^ table[6][(low >> 8) & 0xff] ^ table[5][(low >> 16) & 0xff] ^
              table[4][low >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
        p += 8;
        n -= 8;
    }
    while (n--) crc = table[0][(crc ^ *p++) & 0xff] ^ (crc >> 8);
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#define KA_HAVE_CRC_INSTRUCTION 1
#define KA_CRC_TARGET __attribute__((target("sse4.2")))
#define ka_crc_step8(crc, word) __builtin_ia32_crc32di((crc), (word))
#define ka_crc_step1(crc, byte) __builtin_ia32_crc32qi((crc), (byte))
static int ka_cpu_has_crc(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
}
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32) && defined(__GNUC__)
#include <arm_acle.h>
#define KA_HAVE_CRC_INSTRUCTION 1
#define KA_CRC_TARGET
#define ka_crc_step8(crc, word) __crc32cd((uint32_t)(crc), (word))
#define ka_crc_step1(crc, byte) __crc32cb((crc), (byte))
static int ka_cpu_has_crc(void) { return 1; } /* the compiler was told to assume it */
#else
#define KA_HAVE_CRC_INSTRUCTION 0
static int ka_cpu_has_crc(void) { return 0; }
#endif

#if KA_HAVE_CRC_INSTRUCTION
/* The instruction takes three cycles but starts one each cycle: three lanes at once keep it busy. */
KA_CRC_TARGET static uint32_t ka_crc_instruction(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t word, a = crc;
    while (n >= 3 * KA_LANE) {
        uint64_t b = 0, c = 0;
        const uint8_t *end = p + KA_LANE;
        for (; p < end; p += 8) {
            memcpy(&word, p, 8);
            a = ka_crc_step8(a, word);
            memcpy(&word, p + KA_LANE, 8);
            b = ka_crc_step8(b, word);
            memcpy(&word, p + 2 * KA_LANE, 8);
            c = ka_crc_step8(c, word);
        }
        a = ka_crc_skip((uint32_t)a) ^ b;
        a = ka_crc_skip((uint32_t)a) ^ c;
        p += 2 * KA_LANE;
        n -= 3 * KA_LANE;
    }
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8);
        a = ka_crc_step8(a, word);
    }
    crc = (uint32_t)a;
    while (n--) crc = ka_crc_step1(crc, *p++);
    return crc;
}
#endif

static uint32_t ka_crc32c(const uint8_t *p, size_t n) {
#if KA_HAVE_CRC_INSTRUCTION
    if (ka_crc_hardware) return ka_crc_instruction(0xffffffffu, p, n) ^ 0xffffffffu;
#endif
    return ka_crc_software(ka_crc_table, 0xffffffffu, p, n) ^ 0xffffffffu;
}

static uint32_t ka_crc32(const uint8_t *p, size_t n) {
    return ka_crc_software(ka_crc32_table, 0xffffffffu, p, n) ^ 0xffffffffu;
}

static void ka_crc_fill(uint32_t table[8][256], uint32_t polynomial) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1) ? polynomial : 0);
        table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++) table[k][i] = table[0][table[k - 1][i] & 0xff] ^ (table[k - 1][i] >> 8);
}

/* Fills the tables; called once when the module is imported, under the GIL. */
static void ka_native_init(void) {
    ka_crc_fill(ka_crc_table, KA_CRC_POLYNOMIAL);
    ka_crc_fill(ka_crc32_table, KA_CRC32_POLYNOMIAL);
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t crc = i << (8 * byte);
            for (int zero = 0; zero < KA_LANE; zero++) crc = ka_crc_table[0][crc & 0xff] ^ (crc >> 8);
            ka_crc_skip_lane[byte][i] = crc;
        }
    ka_crc_hardware = ka_cpu_has_crc();
}

static inline int ka_use_crc_hardware(int wanted) {
    ka_crc_hardware = wanted && ka_cpu_has_crc();
    return ka_crc_hardware;
}

/* Copies n bytes; may read up to `src_end` and may write KA_SLACK bytes behind dst + n. */
static inline void ka_copy(uint8_t *dst, const uint8_t *src, int64_t n, const uint8_t *src_end) {
    if (n > 512 || src_end - src < n + KA_SLACK) {
        memcpy(dst, src, (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i += 32) memcpy(dst + i, src + i, 32);
}

/* 1 when every byte is below 0x80. */
static inline int ka_is_ascii(const uint8_t *p, int64_t n) {
    uint8_t seen = 0;
    for (int64_t i = 0; i < n; i++) seen |= p[i];
    return seen < 0x80;
}

/* Zigzag varints as Kafka reads them: at most 5 (10) bytes, bits beyond the type are dropped.
 * Returns the position after it, or NULL when it is truncated or too long. */
static inline const uint8_t *ka_varint_slow(const uint8_t *p, const uint8_t *end, int32_t *out) {
    uint32_t value = 0;
    for (int shift = 0; shift <= 28; shift += 7) {
        if (p >= end) return NULL;
        uint8_t byte = *p++;
        value |= (uint32_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = (int32_t)((value >> 1) ^ (0u - (value & 1)));
            return p;
        }
    }
    return NULL;
}

static inline const uint8_t *ka_varint(const uint8_t *p, const uint8_t *end, int32_t *out) {
    if (end - p >= 2) {
        uint32_t value = p[0];
        if (value < 0x80) {
            *out = (int32_t)((value >> 1) ^ (0u - (value & 1)));
            return p + 1;
        }
        if (p[1] < 0x80) {
            value = (value & 0x7f) | ((uint32_t)p[1] << 7);
            *out = (int32_t)((value >> 1) ^ (0u - (value & 1)));
            return p + 2;
        }
    }
    return ka_varint_slow(p, end, out);
}

/* The same where at least 5 bytes can be read at p, which the caller has checked. */
static inline const uint8_t *ka_varint_ahead(const uint8_t *p, int32_t *out) {
    uint32_t value = p[0];
    if (value < 0x80) {
        *out = (int32_t)((value >> 1) ^ (0u - (value & 1)));
        return p + 1;
    }
    if (p[1] < 0x80) {
        value = (value & 0x7f) | ((uint32_t)p[1] << 7);
        *out = (int32_t)((value >> 1) ^ (0u - (value & 1)));
        return p + 2;
    }
    return ka_varint_slow(p, p + 5, out);
}

static inline const uint8_t *ka_varlong(const uint8_t *p, const uint8_t *end, int64_t *out) {
    if (p < end && *p < 0x80) {
        *out = (int64_t)(*p >> 1) ^ -(int64_t)(*p & 1);
        return p + 1;
    }
    uint64_t value = 0;
    for (int shift = 0; shift <= 63; shift += 7) {
        if (p >= end) return NULL;
        uint8_t byte = *p++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = (int64_t)((value >> 1) ^ (0u - (value & 1)));
            return p;
        }
    }
    return NULL;
}

/* base + delta in milliseconds, wrapping as Java does, in microseconds; 0 where int64 can't hold them. */
static inline int ka_micros(int64_t base, int64_t delta, int64_t *out) {
    const int64_t most = INT64_MAX / 1000;
    uint64_t ms = (uint64_t)base + (uint64_t)delta;
    *out = (int64_t)(ms * 1000u);
    return ms + (uint64_t)most <= 2 * (uint64_t)most;
}

/* Big-endian stores of batch headers. */
static inline void ka_store16(uint8_t *p, int64_t v) {
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static inline void ka_store32(uint8_t *p, int64_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static inline void ka_store64(uint8_t *p, int64_t v) {
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)((uint64_t)v >> (56 - 8 * i));
}

static inline uint64_t ka_zigzag(int64_t v) { return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63); }

/* Bytes of a zigzag varint or varlong. */
static inline int64_t ka_varint_size(int64_t v) {
    uint64_t raw = ka_zigzag(v);
    int64_t size = 1;
    while (raw > 0x7f) {
        raw >>= 7;
        size++;
    }
    return size;
}

/* Writes a zigzag varint or varlong; returns the position behind it. */
static inline uint8_t *ka_put_varint(uint8_t *p, int64_t v) {
    uint64_t raw = ka_zigzag(v);
    while (raw > 0x7f) {
        *p++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *p++ = (uint8_t)raw;
    return p;
}

static inline uint32_t ka_load32_little(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint32_t ka_rotate(uint32_t x, int bits) { return (x << bits) | (x >> (32 - bits)); }

/* xxHash-32 with seed 0: the checksum of LZ4 frames. */
static uint32_t ka_xxh32(const uint8_t *p, int64_t n) {
    const uint32_t p1 = 2654435761u, p2 = 2246822519u, p3 = 3266489917u, p4 = 668265263u, p5 = 374761393u;
    uint32_t h = p5;
    int64_t left = n;
    if (left >= 16) {
        uint32_t a = p1 + p2, b = p2, c = 0, d = 0u - p1;
        for (; left >= 16; p += 16, left -= 16) {
            a = ka_rotate(a + ka_load32_little(p) * p2, 13) * p1;
            b = ka_rotate(b + ka_load32_little(p + 4) * p2, 13) * p1;
            c = ka_rotate(c + ka_load32_little(p + 8) * p2, 13) * p1;
            d = ka_rotate(d + ka_load32_little(p + 12) * p2, 13) * p1;
        }
        h = ka_rotate(a, 1) + ka_rotate(b, 7) + ka_rotate(c, 12) + ka_rotate(d, 18);
    }
    h += (uint32_t)n;
    for (; left >= 4; p += 4, left -= 4) h = ka_rotate(h + ka_load32_little(p) * p3, 17) * p4;
    for (; left > 0; p++, left--) h = ka_rotate(h + *p * p5, 11) * p1;
    h = (h ^ h >> 15) * p2;
    h = (h ^ h >> 13) * p3;
    return h ^ h >> 16;
}

/* Java's Utils.murmur2 of a key, with the sign bit off: what the default partitioner takes modulo the partitions. */
static inline int32_t ka_murmur2(const uint8_t *p, int64_t n) {
    const uint32_t m = 0x5bd1e995u;
    uint32_t h = 0x9747b28cu ^ (uint32_t)n;
    for (; n >= 4; p += 4, n -= 4) {
        uint32_t k = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        k *= m;
        k ^= k >> 24;
        h = (h * m) ^ (k * m);
    }
    if (n == 3) h ^= (uint32_t)p[2] << 16;
    if (n >= 2) h ^= (uint32_t)p[1] << 8;
    if (n >= 1) h = (h ^ p[0]) * m;
    h ^= h >> 13;
    h *= m;
    h ^= h >> 15;
    return (int32_t)(h & 0x7fffffffu);
}

/* The struct of Arrow's C data interface, as Arrow's specification gives it. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
#endif

enum { KA_KEY, KA_VALUE, KA_TOPIC, KA_PARTITION, KA_OFFSET, KA_TIMESTAMP, KA_TIMESTAMP_TYPE, KA_HEADERS, KA_COLUMNS };

/* A record batch with the columns of `SCHEMA`, without headers, in one block: this, and the buffers behind it. */
typedef struct {
    struct ArrowArray batch;
    struct ArrowArray columns[KA_COLUMNS];
    struct ArrowArray header, header_key, header_value;
    const void *none[1]; /* of the batch and the header: no row of theirs is null */
    const void *buffers[KA_COLUMNS][3];
    const void *header_buffers[3];
    struct ArrowArray *column_list[KA_COLUMNS], *header_list[1], *field_list[2];
} ka_small;

static void ka_release_small(struct ArrowArray *array) {
    void *block = array->private_data;
    array->release = NULL;
    free(block); /* NULL for a column: Arrow releases the batch alone */
}

static inline void ka_small_array(
    struct ArrowArray *array, int64_t length, int64_t nulls, int64_t n_buffers, const void **buffers) {
    array->length = length;
    array->null_count = nulls;
    array->n_buffers = n_buffers;
    array->buffers = buffers;
    array->release = ka_release_small;
}

/* Makes the arrays of a batch of `rows` rows whose buffers are set, in a block that was cleared. `zeros` has 4 bytes more than 4 for each row. */
static void ka_small_arrays(ka_small *s, int64_t rows, int64_t null_keys, int64_t null_values, const uint8_t *zeros) {
    int i;
    for (i = 0; i < KA_COLUMNS; i++) {
        ka_small_array(&s->columns[i], rows, 0, i <= KA_TOPIC ? 3 : 2, s->buffers[i]);
        s->column_list[i] = &s->columns[i];
    }
    s->columns[KA_KEY].null_count = null_keys;
    s->columns[KA_VALUE].null_count = null_values;
    s->buffers[KA_HEADERS][0] = s->buffers[KA_HEADERS][1] = zeros; /* no bit is set, and no list has elements */
    s->columns[KA_HEADERS].null_count = rows;
    s->columns[KA_HEADERS].n_children = 1;
    s->columns[KA_HEADERS].children = s->header_list;
    s->header_list[0] = &s->header;
    s->header_buffers[1] = s->header_buffers[2] = zeros;
    ka_small_array(&s->header, 0, 0, 1, s->none);
    ka_small_array(&s->header_key, 0, 0, 3, s->header_buffers);
    ka_small_array(&s->header_value, 0, 0, 3, s->header_buffers);
    s->header.n_children = 2;
    s->header.children = s->field_list;
    s->field_list[0] = &s->header_key;
    s->field_list[1] = &s->header_value;
    ka_small_array(&s->batch, rows, 0, 1, s->none);
    s->batch.n_children = KA_COLUMNS;
    s->batch.children = s->column_list;
    s->batch.private_data = s;
}

#endif
