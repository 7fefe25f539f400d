# Bytes: big-endian numbers, growing buffers, Java's hash of a text.
#
# Rule: whoever writes has asked for room, whoever reads has compared with the end.

ctypedef const unsigned char *Bytes


cdef struct View:
    # Bytes that belong to somebody else; `at` is NULL where there is nothing.
    Bytes at
    Py_ssize_t size


cdef inline unsigned int load_u16(Bytes at) noexcept nogil:
    return <unsigned int>at[0] << 8 | at[1]


cdef inline unsigned int load_u32(Bytes at) noexcept nogil:
    return <unsigned int>at[0] << 24 | <unsigned int>at[1] << 16 | <unsigned int>at[2] << 8 | at[3]


cdef inline int load_i32(Bytes at) noexcept nogil:
    return <int>load_u32(at)


cdef inline long long load_i64(Bytes at) noexcept nogil:
    return <long long>(<unsigned long long>load_u32(at) << 32 | load_u32(at + 4))


cdef inline unsigned char *store_u16(unsigned char *at, unsigned int value) noexcept nogil:
    at[0] = <unsigned char>(value >> 8)
    at[1] = <unsigned char>value
    return at + 2


cdef inline unsigned char *store_u32(unsigned char *at, unsigned int value) noexcept nogil:
    at[0] = <unsigned char>(value >> 24)
    at[1] = <unsigned char>(value >> 16)
    at[2] = <unsigned char>(value >> 8)
    at[3] = <unsigned char>value
    return at + 4


cdef inline unsigned char *store_u64(unsigned char *at, unsigned long long value) noexcept nogil:
    return store_u32(store_u32(at, <unsigned int>(value >> 32)), <unsigned int>value)


cdef inline unsigned char *store_bytes(unsigned char *at, Bytes data, Py_ssize_t size) noexcept nogil:
    memcpy(at, data, size)
    return at + size


cdef inline bint is_same(View view, const char *text, Py_ssize_t size) noexcept nogil:
    return view.size == size and memcmp(view.at, text, size) == 0


cdef inline View view_of(bytes data):
    cdef View view
    view.at = <Bytes>PyBytes_AS_STRING(data)
    view.size = PyBytes_GET_SIZE(data)
    return view


cdef class Buffer:
    # Bytes that grow at their end and are used again: a bytearray as long as the longest content so far.

    cdef bytearray memory
    cdef Py_ssize_t used

    def __cinit__(self):
        self.memory = bytearray()
        self.used = 0

    cdef unsigned char *room(self, Py_ssize_t size) except NULL:
        # Room for so many bytes behind those that are used; they are not counted yet.
        cdef Py_ssize_t wanted = self.used + size
        if wanted >= PyByteArray_GET_SIZE(self.memory):
            self.grow(wanted + (wanted >> 1) + 4096)
        return <unsigned char *>PyByteArray_AS_STRING(self.memory) + self.used

    cdef int grow(self, Py_ssize_t size) except -1:
        cdef bytearray memory
        try:
            PyByteArray_Resize(self.memory, size)
        except BufferError:  # somebody still looks at it, such as the traceback of a refused write
            memory = bytearray(size)
            memcpy(PyByteArray_AS_STRING(memory), PyByteArray_AS_STRING(self.memory), self.used)
            self.memory = memory
        return 0

    cdef int add(self, Bytes data, Py_ssize_t size) except -1:
        memcpy(self.room(size), data, size)
        self.used += size
        return 0

    cdef Bytes start(self) noexcept:
        return <Bytes>PyByteArray_AS_STRING(self.memory)

    cdef bytes copy(self):
        return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(self.memory), self.used)

    cdef int clear(self) except -1:
        # Empty it; what one large content has made of it is given back.
        self.used = 0
        if PyByteArray_GET_SIZE(self.memory) > RETAINED_MAX:
            self.memory = bytearray()
        return 0


cdef unsigned int java_hash(Bytes at, Py_ssize_t size, unsigned int value) noexcept nogil:
    # `String.hashCode()` of UTF-8 that was checked, behind a text whose hash is `value`.
    cdef Bytes end = at + size
    cdef unsigned int char
    while at < end:
        char = at[0]
        if char < 0x80:
            at += 1
        elif char < 0xE0 and end - at >= 2:
            char = (char & 0x1F) << 6 | (at[1] & 0x3F)
            at += 2
        elif char < 0xF0 and end - at >= 3:
            char = (char & 0x0F) << 12 | (at[1] & 0x3F) << 6 | (at[2] & 0x3F)
            at += 3
        elif end - at >= 4:
            char = ((char & 0x07) << 18 | (at[1] & 0x3F) << 12 | (at[2] & 0x3F) << 6 | (at[3] & 0x3F)) - 0x10000
            value = value * 31 + (0xD800 + (char >> 10))
            char = 0xDC00 + (char & 0x3FF)
            at += 4
        else:
            at = end  # cannot be: it was checked
            char = 0xFFFD
        value = value * 31 + char
    return value


cdef inline bint is_ascii(Bytes at, Py_ssize_t size) noexcept nogil:
    cdef Bytes end = at + size
    cdef unsigned long long word
    while end - at >= 8:
        memcpy(&word, at, 8)
        if word & 0x8080808080808080ULL:
            return False
        at += 8
    while at < end:
        if at[0] & 0x80:
            return False
        at += 1
    return True


cdef unsigned char *store_decimal(unsigned char *at, long long value) noexcept nogil:
    # At most 20 characters.
    cdef unsigned char digits[20]
    cdef int count = 0
    cdef unsigned long long left = <unsigned long long>value
    if value < 0:
        at[0] = c"-"
        at += 1
        left = 0 - left
    while True:
        digits[count] = <unsigned char>(48 + left % 10)
        count += 1
        left //= 10
        if left == 0:
            break
    while count:
        count -= 1
        at[0] = digits[count]
        at += 1
    return at


cdef unsigned char *store_hex(unsigned char *at, unsigned long long value) noexcept nogil:
    # 16 characters, upper case.
    cdef int shift = 60
    cdef unsigned char digit
    while shift >= 0:
        digit = <unsigned char>(value >> shift & 15)
        at[0] = 48 + digit if digit < 10 else 55 + digit
        at += 1
        shift -= 4
    return at
