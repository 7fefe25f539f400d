# Sends: one message from its frame into the log, and its answer.
#
# Rule: properties of the common kind are read here, by the rules of `orbitmq.core.admit`; the others go there.

cdef struct Admitted:
    View stored
    long long tags_code


cdef inline bint begins_with(View name, const char *begin, Py_ssize_t size) noexcept nogil:
    return name.size >= size and memcmp(name.at, begin, size) == 0


cdef bint is_special(View name) noexcept nogil:
    # Whether a property makes the broker act, or is the broker's own.
    return (
        is_same(name, b"DELAY", 5)
        or is_same(name, b"TRAN_MSG", 8)
        or is_same(name, b"CLUSTER", 7)
        or begins_with(name, b"TIMER_D", 7)
        or begins_with(name, b"INNER_", 6)
    )


cdef bint read_common(
    CoreState state, unsigned char *text, Py_ssize_t *size, Admitted *admitted, bint is_single
) noexcept nogil:
    # Look at each property; the text gets a separator behind its last entry, and of a single message loses WAIT=true.
    # False: `orbitmq.core.admit` must look at them, and the text is as it was.
    cdef unsigned char *at = text
    cdef unsigned char *end = text + size[0]
    cdef unsigned char *entry_end
    cdef unsigned char *wait = NULL
    cdef unsigned char *wait_end = NULL
    cdef View name, value
    cdef int seen = 0
    cdef int bit
    while at < end:
        entry_end = <unsigned char *>memchr(at, 2, end - at)
        if entry_end == NULL:
            entry_end = end
        name.at = at
        value.at = <Bytes>memchr(at, 1, entry_end - at)
        if value.at == NULL:
            return False
        name.size = value.at - at
        value.at += 1
        value.size = entry_end - value.at
        if name.size == 0 or value.size == 0 or memchr(value.at, 1, value.size) != NULL or is_special(name):
            return False
        bit = 0
        if is_same(name, b"TAGS", 4):
            bit = 1
            admitted.tags_code = <int>java_hash(value.at, value.size, 0)
        elif is_same(name, b"UNIQ_KEY", 8):
            bit = 2
        elif is_same(name, b"KEYS", 4):
            bit = 4
        elif is_single and is_same(name, b"WAIT", 4):
            bit = 8
            if state.is_sync_flush and not is_same(value, b"true", 4):
                return False
            if is_same(value, b"true", 4):
                wait, wait_end = at, entry_end + 1
        if seen & bit:
            return False
        seen |= bit
        at = entry_end + 1
    if at > end and wait_end != at:
        end[0] = 2  # the caller has left room
        end += 1
    if wait != NULL:
        if wait_end < end:
            memmove(wait, wait_end, end - wait_end)
            end -= wait_end - wait
        else:
            end = wait
    size[0] = end - text
    return True


cdef bint admit_plain(CoreState state, bytes properties, Admitted *admitted) except -1:
    # Let the rule of all ways in decide.
    found = admit(properties)
    if isinstance(found, Refusal) or not found.is_ordinary or (state.is_sync_flush and not found.waits_for_sync):
        return False
    state.text.clear()
    state.text.add(<Bytes>PyBytes_AS_STRING(found.own), PyBytes_GET_SIZE(found.own))
    state.text.add(<Bytes>PyBytes_AS_STRING(state.cluster_property), PyBytes_GET_SIZE(state.cluster_property))
    admitted.tags_code = found.tags_code
    admitted.stored.at = state.text.start()
    admitted.stored.size = state.text.used
    return admitted.stored.size <= PROPERTIES_SIZE_MAX


cdef bint admit_value(CoreState state, Value *properties, Admitted *admitted) except -1:
    # Put properties into `state.text` as they are stored; False: not ours.
    cdef Buffer text = state.text
    cdef View cluster = view_of(state.cluster_property)
    cdef unsigned char *start
    cdef Py_ssize_t size = 0
    text.clear()
    start = text.room(properties.view.size + 1 + cluster.size)
    admitted.tags_code = 0
    if properties.kind == ESCAPED:
        size = unescape(properties.view, start)
        if size < 0:
            return False
    elif properties.kind == TEXT:
        size = properties.view.size
        memcpy(start, properties.view.at, size)
    elif properties.kind != NOTHING:
        return False
    if not is_ascii(start, size) and not is_utf8(start, size):
        return False
    if memchr(start, 0, size) != NULL or not read_common(state, start, &size, admitted, True):
        return admit_plain(state, start[:size], admitted)
    memcpy(start + size, cluster.at, cluster.size)
    admitted.stored.at = start
    admitted.stored.size = size + cluster.size
    return admitted.stored.size <= PROPERTIES_SIZE_MAX


cdef bint is_utf8(Bytes at, Py_ssize_t size):
    try:
        PyUnicode_DecodeUTF8(<const char *>at, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef Queue queue_to_send(CoreState state, Request *request):
    # The queue that a send names; None when more than a look is needed.
    cdef Value *name = &request.fields[TOPIC]
    cdef long long queue_id
    if name.kind != TEXT or not number_of(&request.fields[QUEUE_ID], &queue_id):
        return None
    cdef Topic topic = state.topics.get(PyUnicode_DecodeUTF8(<const char *>name.view.at, name.view.size, NULL))
    if topic is None or not topic.is_plain or queue_id >= topic.send_queue_count:
        return None
    return topic.queues.get(queue_id)


cdef bint is_send_whole(Request *request) noexcept nogil:
    # Whether the fields are there that every send has.
    return (
        (request.fields[GROUP].kind == TEXT or request.fields[GROUP].kind == ESCAPED)
        and (request.fields[DEFAULT_TOPIC].kind == TEXT or request.fields[DEFAULT_TOPIC].kind == ESCAPED)
        and (request.fields[QUEUE_COUNT].kind == TEXT or request.fields[QUEUE_COUNT].kind == NUMBER)
    )


cdef bint read_numbers(Request *request, Numbers *numbers) noexcept nogil:
    # The numbers that go into the record; False when one is odd, or asks for more than storing.
    cdef Value *times = &request.fields[RECONSUME_TIMES]
    numbers.reconsume_times = 0
    numbers.prepared_offset = 0
    return (
        int32_of(&request.fields[SYS_FLAG], &numbers.sys_flag)
        and not numbers.sys_flag & ~SENDER_BITS
        and int32_of(&request.fields[FLAG], &numbers.flag)
        and number_of(&request.fields[BORN_MS], &numbers.born_ms)
        and (times.kind == NOTHING or (int32_of(times, &numbers.reconsume_times) and numbers.reconsume_times == 0))
    )


cdef bint take_send(CoreState state, Origin origin, Request *request, View body) except -1:
    # Stage a message and its answer; False when it is not ours.
    cdef LogTail tail = state.tail
    cdef Numbers numbers
    cdef Admitted admitted
    cdef Queue queue
    cdef long long log_offset
    cdef int is_batch = truth_of(&request.fields[IS_BATCH])
    if (
        tail.refusal
        or tail.store_ms < state.send_from_ms
        or request.flag & ~FLAG_ONEWAY
        or body.size > state.body_size_max
        or is_batch < 0
        or not is_send_whole(request)
        or not read_numbers(request, &numbers)
    ):
        return False
    queue = queue_to_send(state, request)
    if queue is None or not admit_value(state, &request.fields[PROPERTIES], &admitted):
        return False
    if is_batch:
        return take_batch(state, origin, queue, request, &numbers, body)
    numbers.tags_code = admitted.tags_code
    log_offset = put_record(tail, queue, origin, &numbers, body, admitted.stored)
    note_keys(tail, queue, log_offset, admitted.stored)
    if not request.flag:
        answer_send(state, request, queue, &log_offset, 1)
    return True


cdef int answer_send(
    CoreState state, Request *request, Queue queue, long long *log_offsets, Py_ssize_t count
) except -1:
    # One answer; the ids of several messages stand behind each other.
    cdef View begin = view_of(state.answer_begin)
    cdef View id = view_of(state.store_id)
    cdef View region = view_of(state.answer_region)
    cdef View end = view_of(state.answer_end)
    cdef unsigned char *start = state.answers.room(
        begin.size + count * (id.size + 17) + region.size + end.size + 160 + PyBytes_GET_SIZE(state.answer_binary)
    )
    cdef unsigned char *at = start + 8
    cdef Py_ssize_t number
    if request.is_binary:
        state.answers.used += answer_send_binary(state, start, request.opaque, queue, log_offsets, count) - start
        return 0
    at = store_bytes(at, begin.at, begin.size)
    for number in range(count):
        if number:
            at = store_bytes(at, b",", 1)
        at = store_hex(store_bytes(at, id.at, id.size), log_offsets[number])
    at = store_bytes(at, b'","queueId":"', 13)
    at = store_decimal(at, queue.queue_id)
    at = store_bytes(at, b'","queueOffset":"', 17)
    at = store_decimal(at, queue.next_offset - count)
    at = store_bytes(at, region.at, region.size)
    at = store_decimal(at, request.opaque)
    at = store_bytes(at, end.at, end.size)
    store_u32(store_u32(start, <unsigned int>(at - start - 4)), <unsigned int>(at - start - 8))
    state.answers.used += at - start
    return 0
