# Binary headers: requests of them, and answers in kind.
#
# Layout: code i16 | language u8 | version i16 | opaque i32 | flag i32 | remark: size i32, text | size of all entries i32 |
# entries: name size i16, name, value size i32, value. An empty name or value is as good as none.
# Rules: those of `scan`; what is taken means the same as in JSON with all values as texts.

cdef enum:
    BINARY_FIXED_SIZE = 17  # up to the remark
    BINARY_KIND = 0x01000000  # above the size of a header


cdef Bytes scan_entry(Bytes at, Bytes end, Request *request) noexcept nogil:
    # One name and its value; gives what follows them, or NULL.
    cdef View name
    cdef Value value
    if end - at < 2:
        return NULL
    name.size = load_u16(at)
    name.at = at + 2
    if name.size > 0x7FFF or name.size > end - name.at - 4:
        return NULL
    at = name.at + name.size
    value.view.size = load_i32(at)
    value.view.at = at + 4
    if value.view.size < 0 or value.view.size > end - value.view.at:
        return NULL
    value.kind = TEXT
    value.is_ascii = is_ascii(value.view.at, value.view.size)
    if not is_ascii(name.at, name.size) or (name.size == 0 and not value.is_ascii):
        return NULL
    if name.size and value.view.size and not set_field(request, name, &value):
        return NULL
    return value.view.at + value.view.size


cdef bint scan_binary(Bytes at, Bytes end, Request *request) noexcept nogil:
    # A whole header; False: it is not ours.
    cdef Py_ssize_t size
    cdef Py_ssize_t count = 0
    memset(request, 0, sizeof(Request))
    if end - at < BINARY_FIXED_SIZE + 4:
        return False
    request.is_binary = True
    request.code = load_u16(at)  # a negative one is none of ours either
    request.opaque = load_i32(at + 5)
    request.flag = load_i32(at + 9)
    size = load_i32(at + 13)
    at += BINARY_FIXED_SIZE
    if not is_ours(request.code) or not 0 <= size <= end - at - 4 or not is_ascii(at, size):
        return False
    at += size
    if load_i32(at) != end - at - 4:
        return False
    at += 4
    while at < end:
        count += 1
        if count > FIELD_COUNT_MAX:
            return False
        at = scan_entry(at, end, request)
        if at == NULL:
            return False
    return True


cdef unsigned char *begin_binary(unsigned char *at, int opaque, const char *remark, Py_ssize_t size) noexcept:
    # The header of an answer up to the size of its entries.
    at = store_bytes(at, <Bytes>PyBytes_AS_STRING(BINARY_BEGIN), PyBytes_GET_SIZE(BINARY_BEGIN))
    at = store_u32(store_u32(store_u32(at, <unsigned int>opaque), 1), <unsigned int>size)
    return store_bytes(at, <Bytes>remark, size)


cdef unsigned char *store_name(unsigned char *at, const char *name, Py_ssize_t size) noexcept nogil:
    return store_bytes(store_u16(at, <unsigned int>size), <Bytes>name, size)


cdef unsigned char *store_number(
    unsigned char *at, const char *name, Py_ssize_t size, long long value
) noexcept nogil:
    # An entry whose value is the text of a number: at most 26 bytes more than its name.
    cdef unsigned char *value_at = store_name(at, name, size)
    cdef unsigned char *end = store_decimal(value_at + 4, value)
    store_u32(value_at, <unsigned int>(end - value_at - 4))
    return end


cdef int end_binary(
    unsigned char *start, unsigned char *entries, unsigned char *end, long long body_size
) noexcept nogil:
    # Put in the sizes: of the entries, and before the header those of frame and header.
    store_u32(entries, <unsigned int>(end - entries - 4))
    start = store_u32(start, <unsigned int>(end - start - 4 + body_size))
    store_u32(start, BINARY_KIND | <unsigned int>(end - start - 4))
    return 0


cdef unsigned char *answer_send_binary(
    CoreState state, unsigned char *start, int opaque, Queue queue, long long *log_offsets, Py_ssize_t count
) except NULL:
    # As `answer_send`, which has asked for the room; gives the answer's end.
    cdef View id = view_of(state.store_id)
    cdef View traced = view_of(state.answer_binary)
    cdef unsigned char *entries = begin_binary(start + 8, opaque, b"", 0)
    cdef unsigned char *at = store_name(entries + 4, b"msgId", 5)
    cdef Py_ssize_t number
    at = store_u32(at, <unsigned int>(count * (id.size + 17) - 1))
    for number in range(count):
        if number:
            at = store_bytes(at, b",", 1)
        at = store_hex(store_bytes(at, id.at, id.size), log_offsets[number])
    at = store_number(at, b"queueId", 7, queue.queue_id)
    at = store_number(at, b"queueOffset", 11, queue.next_offset - count)
    at = store_bytes(at, traced.at, traced.size)
    end_binary(start, entries, at, 0)
    return at


cdef unsigned char *answer_pull_binary(unsigned char *head, long long *numbers, long long body_size) noexcept:
    # As `answer_pull`, from the same four numbers; gives the head's end, at most 200 bytes on.
    cdef unsigned char *entries = begin_binary(head + 8, <int>numbers[3], b"FOUND", 5)
    cdef unsigned char *at = store_number(entries + 4, b"suggestWhichBrokerId", 20, 0)
    at = store_number(at, b"nextBeginOffset", 15, numbers[0])
    at = store_number(at, b"minOffset", 9, numbers[1])
    at = store_number(at, b"maxOffset", 9, numbers[2])
    end_binary(head, entries, at, body_size)
    return at
