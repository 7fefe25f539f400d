# Batches: many messages of one queue in one request, all of them or none.
#
# Layout of each message, back to back: total size i32 | magic i32 | CRC i32 | flag i32 | body size i32 | body |
# properties size i16 | properties. Magic and CRC are not looked at.

cdef enum:
    BATCH_HEAD_SIZE = 20
    BATCH_MESSAGE_MIN = 22

cdef struct Single:
    # One message, as it is stored: its properties lie in `state.text`.
    View body
    Py_ssize_t properties_at
    Py_ssize_t properties_size
    long long tags_code
    int flag


cdef bint cut_message(Bytes at, Bytes end, View *body, View *properties) noexcept nogil:
    # The message that begins here; its end is that of its properties. False: it is torn.
    cdef long long left = end - at
    cdef long long size, body_size, properties_size
    if left < BATCH_MESSAGE_MIN:
        return False
    size, body_size = load_i32(at), load_i32(at + 16)
    if not BATCH_MESSAGE_MIN <= size <= left or not 0 <= body_size <= size - BATCH_MESSAGE_MIN:
        return False
    properties_size = load_u16(at + BATCH_HEAD_SIZE + body_size)
    if properties_size > 0x7FFF or BATCH_MESSAGE_MIN + body_size + properties_size != size:
        return False
    body.at, body.size = at + BATCH_HEAD_SIZE, body_size
    properties.at, properties.size = at + size - properties_size, properties_size
    return True


cdef bint admit_single(CoreState state, View own, View shared, Single *single) except -1:
    # Put the properties of one message, with those of the whole, behind the others in `state.text`.
    cdef Buffer text = state.text
    cdef View cluster = view_of(state.cluster_property)
    cdef unsigned char *start
    cdef Py_ssize_t size = 0
    cdef Admitted admitted
    while own.size and own.at[0] == 2:
        own.at, own.size = own.at + 1, own.size - 1
    start = text.room(own.size + shared.size + 2 + cluster.size)
    memcpy(start, own.at, own.size)
    size = own.size
    if shared.size:
        if size and start[size - 1] != 2:
            start[size] = 2
            size += 1
        memcpy(start + size, shared.at, shared.size)
        size += shared.size
    admitted.tags_code = 0
    if (
        memchr(start, 0, size) == NULL
        and (is_ascii(start, size) or is_utf8(start, size))
        and read_common(state, start, &size, &admitted, False)
    ):
        memcpy(start + size, cluster.at, cluster.size)
        size += cluster.size
    else:
        found = admit(start[:size].lstrip(b"\2"), Way.BATCH)
        if isinstance(found, Refusal):
            return False
        admitted.tags_code = found.tags_code
        stored = found.own + state.cluster_property
        size = len(stored)
        memcpy(text.room(size), <Bytes>PyBytes_AS_STRING(stored), size)
    single.properties_at, single.properties_size = text.used, size
    single.tags_code = admitted.tags_code
    text.used += size
    return size <= PROPERTIES_SIZE_MAX


cdef Py_ssize_t admit_all(CoreState state, View body, View shared, long long *size) except -1:
    # Cut and admit the messages of a batch into `state.singles`; gives their number, 0: not ours.
    cdef Bytes at = body.at
    cdef Bytes end = at + body.size
    cdef View own
    cdef Single single
    cdef Py_ssize_t count = 0
    size[0] = 0
    state.singles.clear()
    state.text.clear()
    while at < end:
        if count == BATCH_COUNT_MAX or not cut_message(at, end, &single.body, &own):
            return 0
        single.flag = load_i32(at + 12)
        at = own.at + own.size
        if not admit_single(state, own, shared, &single):
            return 0
        state.singles.add(<Bytes>&single, sizeof(Single))
        size[0] += single.body.size + single.properties_size
        count += 1
    return count


cdef bint read_shared(CoreState state, Value *properties, View *shared) except -1:
    # The properties of the whole as they came, in `state.shared`.
    cdef Buffer kept = state.shared
    cdef Py_ssize_t size = properties.view.size
    kept.clear()
    kept.room(size + 1)
    if properties.kind == ESCAPED:
        size = unescape(properties.view, <unsigned char *>kept.start())
    elif properties.kind == TEXT:
        memcpy(<unsigned char *>kept.start(), properties.view.at, size)
    else:
        size = 0
    shared.at, shared.size = kept.start(), size
    return size >= 0


cdef bint take_batch(
    CoreState state, Origin origin, Queue queue, Request *request, Numbers *numbers, View body
) except -1:
    # Stage the messages of a batch and one answer; False when it is not ours.
    cdef View shared, properties
    cdef Single *single
    cdef long long size, log_offset
    cdef Py_ssize_t count, number
    if not read_shared(state, &request.fields[PROPERTIES], &shared):
        return False
    count = admit_all(state, body, shared, &size)
    size += count * (origin.fixed_size + PyBytes_GET_SIZE(queue.topic_field))
    if count == 0 or size > state.body_size_max:
        return False
    make_room(state.tail, size)
    state.places.clear()
    state.places.room(count * 8)
    single = <Single *>state.singles.start()
    for number in range(count):
        numbers.flag, numbers.tags_code = single.flag, single.tags_code
        properties.at, properties.size = state.text.start() + single.properties_at, single.properties_size
        log_offset = put_record(state.tail, queue, origin, numbers, single.body, properties)
        note_keys(state.tail, queue, log_offset, properties)
        state.places.add(<Bytes>&log_offset, 8)
        single += 1
    if not request.flag:
        answer_send(state, request, queue, <long long *>state.places.start(), count)
    return True
