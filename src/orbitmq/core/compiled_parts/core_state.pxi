# Everything one broker's hot path looks at.

cdef enum:
    CODES_IN_LINE = 16


cdef class Codes:
    # The tag codes that pass: a few as numbers, many as the set they came in.

    cdef long long few[CODES_IN_LINE]
    cdef int count
    cdef object many

    cdef int take(self, codes) except -1:
        self.many = codes if len(codes) > CODES_IN_LINE else None
        self.count = 0
        if self.many is None:
            for code in codes:
                self.few[self.count] = code
                self.count += 1
        return 0



cdef class CoreState:
    """Everything one broker's hot path looks at; see `orbitmq.core.state.CoreState`."""

    cdef readonly LogTail tail
    cdef public dict topics
    cdef public set groups
    cdef public dict subscriptions
    cdef public dict offsets
    cdef public dict got
    cdef readonly object got_other
    cdef readonly bytes cluster_property
    cdef public Py_ssize_t body_size_max
    cdef public bint is_sync_flush
    cdef public long long send_from_ms
    cdef public bint is_pull_plain
    cdef public long long pull_count_max
    cdef public long long pull_bytes_max
    cdef public long long bulk_bytes_max
    cdef readonly bytes send_answer
    cdef readonly bytes store_id
    cdef tuple answer_parts
    cdef bytes answer_begin
    cdef bytes answer_region
    cdef bytes answer_end
    cdef bytes answer_binary
    cdef Buffer answers
    cdef Buffer text
    cdef Buffer ranges
    cdef Buffer singles
    cdef Buffer shared
    cdef Buffer places
    cdef Codes codes
    cdef tuple pull_parts

    def __init__(self, LogTail tail not None, str cluster not None, str region not None):
        self.tail = tail
        self.topics = {}
        self.groups = set()
        self.subscriptions = {}
        self.offsets = {}
        self.got = {}
        self.got_other = Got()
        self.cluster_property = f"CLUSTER\x01{cluster}".encode()
        self.body_size_max = 4_194_304
        self.is_pull_plain = True
        self.pull_count_max = 32
        self.pull_bytes_max = 262_144
        self.bulk_bytes_max = 524_288
        self.store_id = b""
        self.answers = Buffer()
        self.text = Buffer()
        self.ranges = Buffer()
        self.singles = Buffer()
        self.shared = Buffer()
        self.places = Buffer()
        self.codes = Codes()
        self.pull_parts = tuple(PULL_ANSWER.split(b"%d"))
        ensure(sum(map(len, self.pull_parts)) < 400, "the head of an answer to a pull has its room")
        self.set_answer(region, is_traced=True)

    def pull_limits(self, *, bint is_bulk):
        """Return how many records, and how many bytes of them, a pull gets at most."""
        if is_bulk and self.bulk_bytes_max:
            return BULK_COUNT_MAX, self.bulk_bytes_max
        return self.pull_count_max, self.pull_bytes_max

    def set_answer(self, str region not None, *, bint is_traced):
        """Say what producers are told with each answer: the region, and whether to trace."""
        self.answer_parts = send_answer_parts(region, is_traced=is_traced)
        self.send_answer = send_answer_template(self.answer_parts)
        self.answer_begin = self.answer_parts[0]
        self.answer_region, self.answer_end = self.answer_parts[3], self.answer_parts[4]
        self.answer_binary = binary_send_answer_end(region, is_traced=is_traced)

    def set_store_id(self, bytes store_id not None):
        """Say what message ids begin with."""
        self.store_id = store_id

    def note_got(self, str topic, str group, long long count, long long size):
        """Count the messages that one pull got."""
        got = self.got.get((topic, group))
        if got is None:
            if len(self.got) < shared.GOT_MAX:
                got = self.got[topic, group] = Got()
            else:
                got = self.got_other
        got.count += count
        got.size += size
        got.pulls += 1
