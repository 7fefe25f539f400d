# Pulls: which entries of a queue pass, where their records lie, and the answer.
#
# Rules:
# 1. Nothing past the queue's `readable_offset` is looked at, and only memory is touched; see `plain_gather`.
# 2. An SQL filter may cost some 2 ms a pull (WORK_MAX); what takes longer is for the handler, which looks at the clock.
# 3. Records that are small on average are copied into the answer, large ones are views of the log.

cdef enum:
    WORK_MAX = 300000

cdef struct Range:
    # Records that lie back to back in the log.
    long long start
    long long end

cdef struct Wanted:
    long long queue_offset
    long long count_max
    long long bytes_max
    bint is_filtered

cdef struct Chosen:
    long long scanned
    long long count
    long long size
    Py_ssize_t ranges


cdef inline bint passes(long long code, Codes codes):
    cdef int number
    if codes.many is not None:
        return code in codes.many
    for number in range(codes.count):
        if codes.few[number] == code:
            return True
    return False


cdef bint choose(CoreState state, Queue queue, SqlFilter accepts, Wanted *wanted, Chosen *chosen) except -1:
    # Look at entries from an offset on that is in memory; the ranges go into `state.ranges`. False: it is not ours,
    # for a record is odd or not in memory, or the look takes long.
    cdef long long first = wanted.queue_offset - queue.base_offset
    cdef long long held = PyByteArray_GET_SIZE(queue.entries) // ENTRY_SIZE - first
    cdef long long scan_max = max(wanted.count_max, SCAN_COUNT_LEAST) if wanted.is_filtered else wanted.count_max
    cdef long long count = min(scan_max, queue.readable_offset - wanted.queue_offset, held)
    cdef Bytes at = <Bytes>PyByteArray_AS_STRING(queue.entries) + first * ENTRY_SIZE
    cdef Range *run = NULL
    cdef long long log_offset, size
    cdef long long work = 0
    cdef int said
    cdef bint is_wanted
    memset(chosen, 0, sizeof(Chosen))
    state.ranges.clear()
    if count <= 0:
        return True
    run = <Range *>state.ranges.room(count * sizeof(Range)) - 1
    while chosen.scanned < count:
        log_offset, size = load_i64(at), load_i32(at + 8)
        if accepts is not None:
            if chosen.count == wanted.count_max:
                return True
            said = judge_entry(state.tail, accepts, log_offset, size, &work)
            if said == ODD:
                return False
            is_wanted = said == YES
        else:
            is_wanted = not wanted.is_filtered or passes(load_i64(at + 12), state.codes)
        if is_wanted:
            if chosen.count == wanted.count_max or (chosen.count and chosen.size + size > wanted.bytes_max):
                return True
            if chosen.ranges == 0 or run.end != log_offset:
                run += 1
                run.start = log_offset
                chosen.ranges += 1
            run.end = log_offset + size
            chosen.size += size
            chosen.count += 1
        chosen.scanned += 1
        at += ENTRY_SIZE
    return True


cdef int judge_entry(LogTail tail, SqlFilter accepts, long long log_offset, long long size, long long *work) except -1:
    # What a filter says of the record of an entry; `work` grows by what it may have cost.
    cdef Range place
    cdef View properties
    cdef View record
    if log_offset < tail.hot_offset:
        return ODD
    place.start, place.end = log_offset, log_offset + size
    record = log_part(tail, &place)
    if not find_properties(record, &properties):
        return ODD
    work[0] += accepts.work(properties.size)
    return accepts.judge(properties) if work[0] <= WORK_MAX else ODD


cdef Range *ranges_of(CoreState state) noexcept:
    return <Range *>state.ranges.start()


cdef object status_of(Queue queue, long long queue_offset, long long *next_offset):
    # Why a look at this offset finds nothing in memory; None: it may find something.
    cdef long long readable = queue.readable_offset
    if readable == 0:
        next_offset[0] = 0
        return PullStatus.NO_MESSAGE_IN_QUEUE
    if queue_offset >= readable:
        next_offset[0] = readable
        return PullStatus.OFFSET_OVERFLOW_BADLY if queue_offset > readable else PullStatus.OFFSET_OVERFLOW_ONE
    if queue_offset < queue.min_offset:
        next_offset[0] = queue.min_offset
        return PullStatus.OFFSET_TOO_SMALL
    next_offset[0] = queue_offset
    return PullStatus.COLD if queue_offset < queue.base_offset else None


cdef object look(
    CoreState state, Queue queue, SqlFilter accepts, Wanted *wanted, Chosen *chosen, long long *next_offset
):
    # The status of a look; when it is FOUND the ranges are in `state.ranges`.
    status = status_of(queue, wanted.queue_offset, next_offset)
    if status is not None:
        return status
    if not choose(state, queue, accepts, wanted, chosen):
        return PullStatus.COLD
    next_offset[0] = wanted.queue_offset + chosen.scanned
    if chosen.ranges == 0:
        return PullStatus.NO_MATCHED_MESSAGE
    if ranges_of(state).start < state.tail.hot_offset:
        next_offset[0] = wanted.queue_offset
        return PullStatus.COLD
    return PullStatus.FOUND


cdef View log_part(LogTail tail, Range *part) except *:
    # A range as memory, good as long as the tail has the view of its file.
    cdef long long number = part.start // tail.file_size
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(tail.views[number])
    cdef View view
    if part.start < 0 or part.end - number * tail.file_size > buffer.len:
        ensure(False, "records lie inside their file")
    view.at = <Bytes>buffer.buf + (part.start - number * tail.file_size)
    view.size = part.end - part.start
    return view


cdef list views_of(LogTail tail, Range *ranges, Py_ssize_t count):
    cdef list parts = []
    cdef Py_ssize_t at
    cdef long long number, file_start
    for at in range(count):
        log_part(tail, &ranges[at])
        number = ranges[at].start // tail.file_size
        file_start = number * tail.file_size
        parts.append(tail.views[number][ranges[at].start - file_start : ranges[at].end - file_start])
    return parts


def gather(
    CoreState state not None,
    Queue queue not None,
    long long queue_offset,
    long long count_max,
    codes,
    *,
    bint is_bulk=False,
):
    """Collect readable records from `queue_offset` on, at most `count_max` of them; see the plain one."""
    cdef Wanted wanted
    cdef Chosen chosen
    cdef long long next_offset
    memset(&chosen, 0, sizeof(Chosen))
    set_wanted(state, &wanted, queue_offset, count_max, codes, is_bulk)
    status = look(state, queue, None, &wanted, &chosen, &next_offset)
    if status is not PullStatus.FOUND:
        return Gathered(status, next_offset, [], 0)
    parts = views_of(state.tail, ranges_of(state), chosen.ranges)
    return tuple.__new__(Gathered, (status, next_offset, parts, chosen.size, chosen.count))


cdef int set_wanted(
    CoreState state, Wanted *wanted, long long queue_offset, long long count_max, codes, bint is_bulk
) except -1:
    cdef bint has_bulk = is_bulk and state.bulk_bytes_max != 0
    wanted.queue_offset = queue_offset
    wanted.count_max = min(count_max, BULK_COUNT_MAX if has_bulk else state.pull_count_max)
    wanted.bytes_max = state.bulk_bytes_max if has_bulk else state.pull_bytes_max
    wanted.is_filtered = codes is not None
    if codes is not None:
        state.codes.take(codes)
    return 0


cdef struct PullNumbers:
    int queue_id
    int count_max
    int sys_flag
    long long queue_offset
    long long commit_offset
    long long sub_version
    int is_bulk


cdef inline bint is_plain_text(Value *value) noexcept nogil:
    return value.kind == TEXT


cdef bint read_pull(Request *request, PullNumbers *numbers) noexcept nogil:
    # The numbers of a pull; False when one is odd or missing.
    cdef long long suspend_ms
    numbers.is_bulk = truth_of(&request.fields[IS_BULK])
    return (
        is_plain_text(&request.fields[GROUP])
        and is_plain_text(&request.fields[TOPIC])
        and int32_of(&request.fields[QUEUE_ID], &numbers.queue_id)
        and int32_of(&request.fields[COUNT_MAX], &numbers.count_max)
        and int32_of(&request.fields[SYS_FLAG], &numbers.sys_flag)
        and number_of(&request.fields[QUEUE_OFFSET], &numbers.queue_offset)
        and number_of(&request.fields[COMMIT_OFFSET], &numbers.commit_offset)
        and number_of(&request.fields[SUSPEND_MS], &suspend_ms)
        and number_of(&request.fields[SUB_VERSION], &numbers.sub_version)
        and numbers.is_bulk >= 0
        and numbers.count_max > 0
        and not numbers.sys_flag & ~7
    )


cdef str text_of(Value *value):
    return PyUnicode_DecodeUTF8(<const char *>value.view.at, value.view.size, NULL)


cdef object subscription_of(CoreState state, Request *request, PullNumbers *numbers, str group, str topic):
    # What the pull asks for; None when the answer needs more than a look.
    cdef Value *expression = &request.fields[SUBSCRIPTION]
    cdef Value *kind = &request.fields[EXPRESSION_TYPE]
    if group not in state.groups:
        return None
    if numbers.sys_flag & PULL_HAS_SUBSCRIPTION:
        is_all = expression.kind == TEXT and is_same(expression.view, b"*", 1)
        is_tag = kind.kind == NOTHING or (kind.kind == TEXT and is_same(kind.view, b"TAG", 3))
        return EVERYTHING if is_all and is_tag else None
    subscription = state.subscriptions.get((group, topic))
    return subscription if subscription is not None and subscription.version >= numbers.sub_version else None


cdef Queue queue_to_pull(CoreState state, Request *request, PullNumbers *numbers, str name):
    # The queue that a pull names; None when more than a look is needed.
    cdef Value *bytes_max = &request.fields[BYTES_MAX]
    cdef long long limit = state.bulk_bytes_max if numbers.is_bulk and state.bulk_bytes_max else state.pull_bytes_max
    cdef int wanted
    cdef Topic topic = state.topics.get(name)
    if topic is None or not topic.is_readable or request.flag or not state.is_pull_plain:
        return None
    if bytes_max.kind != NOTHING and (not int32_of(bytes_max, &wanted) or wanted < limit):
        return None
    return topic.queues.get(numbers.queue_id) if numbers.queue_id < topic.read_queue_count else None


cdef long long take_pull(CoreState state, Request *request, list answers) except -1:
    # Add the answer to a pull that finds something, and give its size; 0: it is not ours.
    cdef PullNumbers numbers
    cdef Wanted wanted
    cdef Chosen chosen
    cdef Queue queue
    cdef long long next_offset
    if not read_pull(request, &numbers):
        return 0
    name, group = text_of(&request.fields[TOPIC]), text_of(&request.fields[GROUP])
    queue = queue_to_pull(state, request, &numbers, name)
    subscription = subscription_of(state, request, &numbers, group, name) if queue is not None else None
    if subscription is None:
        return 0
    set_wanted(state, &wanted, numbers.queue_offset, numbers.count_max, subscription.codes, numbers.is_bulk)
    wanted.is_filtered = wanted.is_filtered or subscription.accepts is not None
    if look(state, queue, subscription.accepts, &wanted, &chosen, &next_offset) is not PullStatus.FOUND:
        return 0
    if numbers.sys_flag & PULL_COMMITS:
        queues = state.offsets.get(f"{name}@{group}")
        if queues is None or numbers.commit_offset < 0:
            return 0
    size = answer_pull(state, request, queue, next_offset, &chosen, answers)
    if numbers.sys_flag & PULL_COMMITS:
        queues[numbers.queue_id] = numbers.commit_offset
    state.note_got(name, group, chosen.count, chosen.size)
    return size


cdef long long answer_pull(
    CoreState state, Request *request, Queue queue, long long next_offset, Chosen *chosen, list answers
) except -1:
    cdef long long numbers[4]
    cdef unsigned char head[512]
    cdef unsigned char *at = head + 8
    cdef Range *ranges = ranges_of(state)
    cdef Py_ssize_t head_size
    cdef View view
    cdef bytes answer, piece
    cdef int number
    numbers[0], numbers[1], numbers[2], numbers[3] = next_offset, queue.min_offset, queue.readable_offset, request.opaque
    if request.is_binary:
        at = answer_pull_binary(head, numbers, chosen.size)
    else:
        for number in range(5):
            piece = state.pull_parts[number]
            at = store_bytes(at, <Bytes>PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
            if number < 4:
                at = store_decimal(at, numbers[number])
        store_u32(store_u32(head, <unsigned int>(at - head - 4 + chosen.size)), <unsigned int>(at - head - 8))
    head_size = at - head
    if chosen.size >= chosen.ranges * COPY_BELOW_BYTES:
        parts = views_of(state.tail, ranges, chosen.ranges)
        flush_answers(state, answers)
        answers.append(head[:head_size])
        answers += parts
        return head_size + chosen.size
    answer = PyBytes_FromStringAndSize(NULL, head_size + <Py_ssize_t>chosen.size)
    at = store_bytes(<unsigned char *>PyBytes_AS_STRING(answer), head, head_size)
    for number in range(chosen.ranges):
        view = log_part(state.tail, &ranges[number])
        at = store_bytes(at, view.at, view.size)
    flush_answers(state, answers)
    answers.append(answer)
    return head_size + chosen.size
