# Rows of the key index: made while the record is warm, filed into slots and entries; see `orbitmq.core.plain_rows`.

cdef enum:
    ROW_SIZE = 20
    INDEX_ENTRY_SIZE = 20

cdef struct Row:
    int key_hash
    long long log_offset
    long long store_ms


cdef bint find_keys(View properties, View *unique, View *words) noexcept nogil:
    # The id and the words of KEYS; False where properties must be parsed: something stands there twice, or is odd.
    cdef Bytes at = properties.at
    cdef Bytes end = at + properties.size
    cdef Bytes entry_end
    cdef Bytes name_end
    cdef View name, value
    cdef View *found
    unique.at = words.at = NULL
    unique.size = words.size = 0
    while at < end:
        entry_end = <Bytes>memchr(at, 2, end - at)
        if entry_end == NULL:
            entry_end = end
        name_end = <Bytes>memchr(at, 1, entry_end - at)
        if name_end != NULL:
            name.at, name.size = at, name_end - at
            value.at, value.size = name_end + 1, entry_end - name_end - 1
            if memchr(value.at, 1, value.size) != NULL:
                return False
            found = unique if is_same(name, b"UNIQ_KEY", 8) else words if is_same(name, b"KEYS", 4) else NULL
            if found != NULL:
                if found.at != NULL or value.size == 0:
                    return False
                found[0] = value
        at = entry_end + 1
    return True


cdef int add_row(LogTail tail, Queue queue, View key, long long log_offset) except -1:
    cdef int key_hash = <int>java_hash(key.at, key.size, queue.topic_hash)
    cdef unsigned char *at = tail.row_buffer.room(ROW_SIZE)
    if key_hash < 0:
        key_hash = 0 if key_hash == -0x7FFFFFFF - 1 else -key_hash
    memcpy(at, &key_hash, 4)
    memcpy(at + 4, &log_offset, 8)
    memcpy(at + 12, &tail.store_ms, 8)
    tail.row_buffer.used += ROW_SIZE
    return 0


cdef int note_keys(LogTail tail, Queue queue, long long log_offset, View properties) except -1:
    # Stage the rows of a record.
    cdef View unique, words, word
    cdef Bytes end
    cdef int count = 0
    if not is_ascii(properties.at, properties.size) or not find_keys(properties, &unique, &words):
        return note_keys_plain(tail, queue, log_offset, properties.at[:properties.size])
    if unique.at != NULL:
        add_row(tail, queue, unique, log_offset)
    if words.at == NULL:
        return 0
    end = words.at + words.size
    word.at = words.at
    while word.at < end:
        words.at = <Bytes>memchr(word.at, 32, end - word.at)
        word.size = (end if words.at == NULL else words.at) - word.at
        if word.size:
            count += 1
            if count <= WORDS_MAX:
                add_row(tail, queue, word, log_offset)
            else:
                tail.left_out += 1
        word.at += word.size + 1
    return 0


cdef int note_keys_plain(LogTail tail, Queue queue, long long log_offset, bytes properties) except -1:
    cdef View rows
    found, left_out = rows_of(queue.topic, log_offset, tail.store_ms, properties)
    rows = view_of(found)
    tail.row_buffer.add(rows.at, rows.size)
    tail.left_out += left_out
    return 0


def file_rows(filing, rows, unsigned int number, long long begin_ms):
    """File rows as the entries from `number` on; return how many slots they are the first of."""
    cdef unsigned int[::1] slots = filing.slots
    cdef unsigned char[::1] dirty = filing.dirty
    cdef bytearray entries = filing.entries
    cdef const unsigned char[::1] data = rows
    cdef long long slot_count = filing.slot_count
    cdef long long first_slot = filing.first_slot
    cdef long long page_slots = filing.page_slots
    cdef Py_ssize_t used = PyByteArray_GET_SIZE(entries)
    cdef Py_ssize_t count = data.shape[0] // ROW_SIZE
    cdef Py_ssize_t at
    cdef unsigned char *entry
    cdef Row row
    cdef long long place, age_s, new_count = 0
    ensure(slot_count > 0 and first_slot + slot_count <= slots.shape[0], "slots have their memory")
    ensure((first_slot + slot_count - 1) // page_slots < dirty.shape[0], "each page has its mark")
    PyByteArray_Resize(entries, used + count * INDEX_ENTRY_SIZE)
    entry = <unsigned char *>PyByteArray_AS_STRING(entries) + used
    for at in range(count):
        memcpy(&row.key_hash, &data[at * ROW_SIZE], 4)
        memcpy(&row.log_offset, &data[at * ROW_SIZE + 4], 8)
        memcpy(&row.store_ms, &data[at * ROW_SIZE + 12], 8)
        place = first_slot + <unsigned int>row.key_hash % slot_count
        age_s = min(max(0, row.store_ms - begin_ms) // 1000, AGE_S_MAX)
        entry = store_u32(store_u64(store_u32(entry, row.key_hash), row.log_offset), <unsigned int>age_s)
        entry = store_u32(entry, slots[place])
        new_count += slots[place] == 0
        slots[place] = number + <unsigned int>at  # the entry is there already
        dirty[place // page_slots] = 1
    return new_count
