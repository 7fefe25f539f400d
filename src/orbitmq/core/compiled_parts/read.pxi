# One read: its frames in order, up to the first that is not ours.


def handle_one_read(
    CoreState state not None, bytes data not None, Py_ssize_t start, Origin origin not None, long long now_ms
):
    """Handle the frames of `data` from `start` on, up to the first one that is not ours.

    `now_ms` is the wall clock.
    """
    cdef Bytes begin = <Bytes>PyBytes_AS_STRING(data)
    cdef Bytes end = begin + PyBytes_GET_SIZE(data)
    cdef Bytes at = begin + start
    cdef Bytes body
    cdef Py_ssize_t length, pulled_size = 0
    cdef int sends = 0, pulls = 0
    cdef list answers = []
    cdef Request request
    cdef View view
    cdef Py_ssize_t size
    cdef bint is_known
    if not 0 <= start <= PyBytes_GET_SIZE(data):
        ensure(False, "the frames begin inside the read")
    state.tail.advance_clock(now_ms)
    state.answers.clear()
    while end - at >= 8 and not origin.is_guarded:
        length = load_i32(at)
        size = load_u32(at + 4) & 0xFFFFFF
        if at[4] > 1 or size > HEADER_SIZE_MAX or not size <= length - 4 <= FRAME_SIZE_MAX - 8:
            break
        if length + 4 > end - at or pulled_size > PULLED_SIZE_MAX:
            end = at  # nothing more is ours for now
            break
        body = at + 8 + size
        view.at = body
        view.size = length - 4 - size
        is_known = scan_binary(at + 8, body, &request) if at[4] else scan_json(at + 8, body, &request)
        if not is_known:
            break
        if request.code != 11:
            if not take_send(state, origin, &request, view):
                break
            sends += 1
        else:
            size = take_pull(state, &request, answers)
            if not size:
                break
            pulls += 1
            pulled_size += size
        at += length + 4
    flush_answers(state, answers)
    unknown = next_frame(data, at - begin) if at < end else None
    start = at - begin
    if unknown is not None:
        start = end_of(unknown, start)
    return tuple.__new__(
        ReadResult, (start, answers, state.tail.end_offset, state.tail.grown, unknown, sends, pulls)
    )


cdef int flush_answers(CoreState state, list answers) except -1:
    # Hand on what is in the buffer: what follows is a part of its own.
    if state.answers.used:
        answers.append(state.answers.copy())
        state.answers.clear()
    return 0
