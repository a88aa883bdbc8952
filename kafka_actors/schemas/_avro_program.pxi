# Programs of Avro, as `avro_program.py` has them: kinds of steps, forms of numbers, codes of failures; and their steps in memory.
# It comes after `_columns.pxi`.

cdef enum:
    OP_NULL = 0
    OP_BOOLEAN = 1
    OP_INT = 2
    OP_LONG = 3
    OP_FLOAT = 4
    OP_DOUBLE = 5
    OP_BYTES = 6
    OP_FIXED = 7
    OP_ENUM = 8
    OP_DECIMAL = 9
    OP_FIXED_DECIMAL = 10
    OP_DURATION = 11
    OP_UUID = 12
    OP_RECORD = 13
    OP_ARRAY = 14
    OP_MAP = 15
    OP_UNION = 16
    OP_CONSTANT = 17
    OP_FAIL = 18
    OP_MEMBER = 19

cdef enum:
    AS_IT_IS = 0
    AS_INT32 = 1
    AS_INT64 = 2
    AS_FLOAT = 3
    AS_DOUBLE = 4
    AS_TEXT = 5

cdef enum:
    ERR_SHORT = 10
    ERR_TRAILING = 11
    ERR_VARINT = 12
    ERR_RANGE = 13
    ERR_LENGTH = 14
    ERR_UTF8 = 15
    ERR_BRANCH = 16
    ERR_SYMBOL = 17
    ERR_BOOLEAN = 18
    ERR_DECIMAL = 19
    ERR_EMPTY = 20
    ERR_REFUSED = 21
    ERR_DEPTH = 22
    ERR_NO_VALUE = 30
    ERR_NO_SYMBOL = 31
    ERR_SIZE = 32
    ERR_UNIT = 33
    ERR_UUID = 34
    ERR_DURATION = 35
    ERR_NO_MEMBER = 36
    ERR_MEMBERS = 37
    ERR_LONG_RANGE = 38
    ERR_FLOAT_RANGE = 39

cdef struct Step:
    int op
    int column
    int store
    int first
    int64_t size
    int64_t count

cdef struct Text:
    const uint8_t *p
    int64_t n            # -1: the reader has no such symbol

cdef class Steps:
    """The steps of a program, as `avro_program.flat` makes them."""

    cdef Step *steps
    cdef int *children
    cdef Text *texts
    cdef object program

    def __cinit__(self, program):
        cdef int count = len(program.steps) // 6, k
        self.program = program                 # keeps the texts
        self.steps = <Step *> malloc((count + 1) * sizeof(Step))
        self.children = <int *> malloc((len(program.children) + 1) * sizeof(int))
        self.texts = <Text *> malloc((len(program.texts) + 1) * sizeof(Text))
        if self.steps == NULL or self.children == NULL or self.texts == NULL:
            raise MemoryError
        flat = program.steps
        for k in range(count):
            self.steps[k].op = flat[6 * k]
            self.steps[k].column = flat[6 * k + 1]
            self.steps[k].store = flat[6 * k + 2]
            self.steps[k].size = flat[6 * k + 3]
            self.steps[k].first = flat[6 * k + 4]
            self.steps[k].count = flat[6 * k + 5]
        for k, child in enumerate(program.children):
            self.children[k] = child
        for k, text in enumerate(program.texts):
            self.texts[k].p = <const uint8_t *> <const char *> text if text is not None else NULL
            self.texts[k].n = len(text) if text is not None else -1

    def __dealloc__(self):
        free(self.steps)
        free(self.children)
        free(self.texts)
