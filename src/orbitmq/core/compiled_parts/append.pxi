# Appending: records staged at the end of the log, with their queue entries.
#
# Rule: a record never spans files: what does not fit is preceded by a blank record that fills the file.

cdef struct Numbers:
    # What the sender chooses of a record's numbers.
    int flag
    int sys_flag
    long long born_ms
    int reconsume_times
    long long prepared_offset
    long long tags_code


cdef int make_room(LogTail tail, long long size) except -1:
    # Let the next file begin when this one has no room for so many bytes and the blank record behind them.
    cdef long long left = tail.file_size - tail.end_offset % tail.file_size
    cdef unsigned char *at
    if size + BLANK_SIZE <= left:
        return 0
    if size + BLANK_SIZE > tail.file_size:
        ensure(False, "a record fits a log file")
    at = tail.buffer.room(left)
    memset(at, 0, left)
    store_u32(store_u32(at, <unsigned int>left), BLANK_MAGIC)
    tail.buffer.used += left
    tail.end_offset += left
    return 0


cdef long long put_record(
    LogTail tail, Queue queue, Origin origin, Numbers *numbers, View body, View properties
) except -1:
    # Stage one record and enter it into its queue; gives its log offset.
    cdef View topic = view_of(queue.topic_field)
    cdef Py_ssize_t size = origin.fixed_size + body.size + topic.size + properties.size
    cdef bint is_outside = numbers.sys_flag & OUTSIDE_QUEUE != 0
    cdef long long queue_offset = 0 if is_outside else queue.next_offset
    cdef long long log_offset
    cdef unsigned char *at
    if properties.size > PROPERTIES_SIZE_MAX or size > 0x7FFFFFFF:
        ensure(False, "a record's sizes fit their fields")
    make_room(tail, size)
    at = tail.buffer.room(size)
    log_offset = tail.end_offset
    if not is_outside:
        if not queue.has_grown:
            tail.grown.add(queue)
            queue.has_grown = True
        queue.put_entry(log_offset, <int>size, numbers.tags_code)
    at = store_u32(at, <unsigned int>size)
    at = store_u32(at, queue.magic)
    at = store_u32(at, orbitmq_crc32(body.at, body.size) & 0x7FFFFFFF)
    at = store_u32(at, queue.queue_id)
    at = store_u32(at, numbers.flag)
    at = store_u64(at, queue_offset)
    at = store_u64(at, log_offset)
    at = store_u32(at, numbers.sys_flag | origin.host_bits)
    at = store_u64(at, numbers.born_ms)
    at = store_bytes(at, <Bytes>PyBytes_AS_STRING(origin.born_field), PyBytes_GET_SIZE(origin.born_field))
    at = store_u64(at, tail.store_ms)
    at = store_bytes(at, <Bytes>PyBytes_AS_STRING(origin.store_field), PyBytes_GET_SIZE(origin.store_field))
    at = store_u32(at, numbers.reconsume_times)
    at = store_u64(at, numbers.prepared_offset)
    at = store_u32(at, <unsigned int>body.size)
    at = store_bytes(at, body.at, body.size)
    at = store_bytes(at, topic.at, topic.size)
    at = store_u16(at, <unsigned int>properties.size)
    store_bytes(at, properties.at, properties.size)
    tail.buffer.used += size
    tail.end_offset = log_offset + size
    tail.staged_count += 1
    return log_offset


cdef inline bytes as_bytes(data):
    return data if type(data) is bytes else bytes(data)


def append(
    LogTail tail not None, Queue queue not None, Origin origin not None, stamp, body, bytes properties not None
):
    """Stage one record at the end of the log and return its log offset; `stamp` is a Stamp."""
    cdef Numbers numbers
    cdef bytes kept = as_bytes(body)
    cdef long long log_offset
    numbers.flag, numbers.sys_flag, numbers.born_ms, numbers.reconsume_times, numbers.prepared_offset, numbers.tags_code = stamp
    log_offset = put_record(tail, queue, origin, &numbers, view_of(kept), view_of(properties))
    if numbers.sys_flag & TRANSACTION_MASK != ROLLBACK:  # nobody looks for one that was rolled back
        note_keys(tail, queue, log_offset, view_of(properties))
    return log_offset


def append_copies(LogTail tail not None, queues, long long log_offset, long long code):
    """Enter the record that was staged last into further queues, which its properties name."""
    cdef Queue queue
    cdef int size = <int>(tail.end_offset - log_offset)
    for queue in queues:
        tail.grown.add(queue)
        queue.has_grown = True
        queue.put_entry(log_offset, size, code)
        tail.copy_count += 1


def append_batch(LogTail tail not None, Queue queue not None, Origin origin not None, stamp, messages):
    """Stage the messages of a batch for one queue back to back and return their log offsets."""
    cdef Numbers numbers
    cdef bytes body, properties
    cdef list log_offsets = []
    cdef long long log_offset
    numbers.sys_flag, numbers.born_ms, numbers.reconsume_times = stamp
    numbers.prepared_offset = 0
    ensure(not numbers.sys_flag & OUTSIDE_QUEUE, "a message of a batch has its place in the queue")
    make_room(tail, messages.size_with(origin.fixed_size + len(queue.topic_field)))
    columns = zip(messages.bodies, messages.properties, messages.flags, messages.tags_codes, strict=True)
    for body, properties, numbers.flag, numbers.tags_code in columns:
        properties = properties + messages.ending
        log_offset = put_record(tail, queue, origin, &numbers, view_of(body), view_of(properties))
        note_keys(tail, queue, log_offset, view_of(properties))
        log_offsets.append(log_offset)
    return log_offsets
