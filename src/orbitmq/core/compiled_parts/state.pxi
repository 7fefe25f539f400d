# The state of the hot path as C structures, under the names and with the verbs of `orbitmq.core.state`.


cdef bytes host_field(bytes host):
    # An address and its port as a record has them: 8 bytes, or 20.
    size = 20 if len(host) > 8 else 8
    return host[:size].ljust(size, b"\0")


cdef class Origin:
    """Where the messages of one connection come from and how their records begin."""

    cdef readonly bytes born_host
    cdef readonly bytes store_host
    cdef readonly int host_bits
    cdef bytes born_field
    cdef bytes store_field
    cdef readonly Py_ssize_t fixed_size
    """The record without body, topic field and properties."""
    cdef public bint is_guarded
    """Whether the table of requests serves all that this connection asks."""

    def __init__(self, bytes born_host not None, bytes store_host not None):
        self.born_host = born_host
        self.store_host = store_host
        self.host_bits = (BORN_HOST_V6 if len(born_host) > 8 else 0) | (STORE_HOST_V6 if len(store_host) > 8 else 0)
        self.born_field, self.store_field = host_field(born_host), host_field(store_host)
        self.fixed_size = 72 + len(self.born_field) + len(self.store_field) + 2
        self.is_guarded = False


cdef class Queue:
    """One queue of a topic: what is in it and the newest part of its entries."""

    cdef readonly str topic
    cdef readonly int queue_id
    cdef readonly unsigned int magic
    cdef readonly bytes topic_field
    cdef public long long next_offset
    cdef public long long readable_offset
    cdef public long long min_offset
    cdef public long long base_offset
    cdef public long long flushed_offset
    cdef public long long put_count
    cdef public long long put_bytes
    cdef public bytearray entries
    cdef bint has_grown
    cdef unsigned int topic_hash

    def __init__(self, str topic not None, int queue_id, long long next_offset):
        self.topic = topic
        self.queue_id = queue_id
        self.magic, self.topic_field = topic_field(topic)
        self.next_offset = self.readable_offset = next_offset
        self.base_offset = self.flushed_offset = next_offset
        self.entries = bytearray()
        name = f"{topic}#".encode()
        self.topic_hash = java_hash(<Bytes>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), 0)

    cpdef bytes read_entries(self, long long queue_offset, long long count):
        """Return up to `count` readable entries, from `base_offset` or a later offset on."""
        cdef long long first = queue_offset - self.base_offset
        count = min(count, self.readable_offset - queue_offset, PyByteArray_GET_SIZE(self.entries) // ENTRY_SIZE - first)
        if first < 0 or count <= 0:
            return b""
        return PyBytes_FromStringAndSize(
            PyByteArray_AS_STRING(self.entries) + first * ENTRY_SIZE, <Py_ssize_t>(count * ENTRY_SIZE)
        )

    cpdef put_entry(self, long long log_offset, int size, long long code):
        """Enter a record."""
        cdef Py_ssize_t used = PyByteArray_GET_SIZE(self.entries)
        cdef unsigned char *at
        PyByteArray_Resize(self.entries, used + ENTRY_SIZE)
        at = <unsigned char *>PyByteArray_AS_STRING(self.entries) + used
        store_u64(store_u32(store_u64(at, log_offset), size), code)
        self.put_bytes += size
        self.next_offset += 1

    cpdef take_back(self, long long next_offset):
        """Drop the entries from this offset on: their records were not written."""
        cdef Py_ssize_t start = (next_offset - self.base_offset) * ENTRY_SIZE
        cdef Py_ssize_t at
        ensure(0 <= start <= PyByteArray_GET_SIZE(self.entries), "a queue goes back to where it was")
        for at in range(start, PyByteArray_GET_SIZE(self.entries) - ENTRY_SIZE + 1, ENTRY_SIZE):
            self.put_bytes -= load_i32(<Bytes>PyByteArray_AS_STRING(self.entries) + at + 8)
        del self.entries[start:]
        self.next_offset = next_offset

    def publish(self, long long next_offset):
        """Let what lies before this offset be seen; return how many messages that adds."""
        cdef long long count = next_offset - self.readable_offset
        self.readable_offset = next_offset
        self.put_count += count
        return count

    def note_flushed(self, long long end_offset):
        """Take in that entries before this offset are in the queue's files."""
        self.flushed_offset = end_offset

    def drop_before(self, long long queue_offset):
        """Let memory go of entries before this offset that are in the queue's files."""
        cdef long long count = min(queue_offset, self.flushed_offset) - self.base_offset
        if count > 0:
            del self.entries[: count * ENTRY_SIZE]
            self.base_offset += count

    def begin_at(self, long long min_offset):
        """Let the queue begin here; what lies before is gone."""
        self.min_offset = max(self.min_offset, min_offset)


cdef class Topic:
    """What the hot path must know of a topic. Only queues that were used are in `queues`."""

    cdef readonly str name
    cdef public dict queues
    cdef public long long read_queue_count
    cdef public long long send_queue_count
    cdef public bint is_plain
    cdef public bint is_readable

    def __init__(
        self, str name not None, long long read_queue_count, *, bint is_plain, bint is_readable, send_queue_count=None
    ):
        self.name = name
        self.queues = {}
        self.read_queue_count = read_queue_count
        self.send_queue_count = read_queue_count if send_queue_count is None else send_queue_count
        self.is_plain = is_plain
        self.is_readable = is_readable


cdef class LogTail:
    """The end of the log: where the next record goes and what is staged for the next write."""

    cdef readonly long long file_size
    cdef public long long end_offset
    cdef public long long hot_offset
    cdef public long long store_ms
    cdef public Py_ssize_t staged_count
    cdef public Py_ssize_t copy_count
    cdef readonly object written
    cdef readonly object visible
    cdef readonly str refusal
    cdef readonly set grown
    cdef public long long left_out
    cdef readonly dict views
    cdef Buffer buffer
    cdef Buffer spare
    cdef Buffer row_buffer

    def __init__(self, long long file_size, long long end_offset):
        ensure(file_size > 0 and end_offset >= 0, "a log has files, and ends behind its beginning")
        self.file_size = file_size
        self.end_offset = end_offset
        self.hot_offset = end_offset
        self.written = Watermark(end_offset)
        self.visible = Watermark(end_offset)
        self.refusal = ""
        self.grown = set()
        self.views = {}
        self.row_buffer = Buffer()
        self.buffer = Buffer()
        self.spare = Buffer()

    @property
    def staged(self):
        """What is staged, as memory: for a look only, nothing can be staged while it is held."""
        return memoryview(self.buffer.memory)[: self.buffer.used]

    @property
    def rows(self):
        """What is staged for the key index: see `orbitmq.core.plain_rows`."""
        return self.row_buffer.copy()

    @property
    def written_offset(self):
        """Where the next write goes."""
        return self.written.number

    @property
    def visible_offset(self):
        """Where what may be seen ends."""
        return self.visible.number

    cpdef advance_clock(self, long long now_ms):
        """Let the next record have this store time, unless one had a later one."""
        if now_ms > self.store_ms:
            self.store_ms = now_ms

    def refuse(self, str reason not None):
        """Take no record any more, for this reason; empty: take them again."""
        self.refusal = reason

    def cool(self, long long log_offset):
        """Leave what lies before an offset to those who read files."""
        self.hot_offset = max(self.hot_offset, log_offset)

    def take(self):
        """Return what is staged, to be written; from here on the next write is staged.

        Its bytes are good until the next call.
        """
        cdef Queue queue
        cdef list grown = []
        for queue in self.grown:
            queue.has_grown = False
            grown.append((queue, queue.next_offset))
        staged = tuple.__new__(
            Staged,
            (self.staged, grown, self.row_buffer.copy(), self.staged_count, self.copy_count, self.left_out),
        )
        self.buffer, self.spare = self.spare, self.buffer
        self._empty()
        return staged

    def take_back(self, grown):
        """Go back to what is written: nothing is staged, and queues end where they did then."""
        cdef Queue queue
        for queue in self.grown:
            queue.has_grown = False
        self._empty()
        self.end_offset = self.written.number
        for queue, next_offset in grown:
            queue.take_back(next_offset)

    cdef _empty(self):
        self.buffer.clear()
        self.grown = set()
        self.row_buffer.clear()
        self.staged_count = self.copy_count = 0
        self.left_out = 0

    def skip(self, long long size):
        """Let the log end so much later: these bytes come from another log, or are zeros."""
        self.end_offset += size

    def forget(self, Queue queue not None):
        """Let a queue that is gone not count as one that grew."""
        queue.has_grown = False
        self.grown.discard(queue)
