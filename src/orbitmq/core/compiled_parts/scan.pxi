# Headers of requests in JSON, in any order of fields; `binary` has the others.
#
# In: the bytes of a header. Out: a Request whose fields are views of them.
# Rules:
# 1. Whatever is odd is not ours (False), never wrong: nested values, null, a name with an escape or twice, a character
#    beyond ASCII anywhere but in properties, a number with a leading zero.
# 2. Nothing is read at or behind `end`.

cdef enum:
    FIELD_COUNT = 14

cdef enum:
    # Of sends.
    GROUP, TOPIC, DEFAULT_TOPIC, QUEUE_COUNT, QUEUE_ID, SYS_FLAG, BORN_MS, FLAG, PROPERTIES, RECONSUME_TIMES,
    UNIT_MODE, MAX_RECONSUME_TIMES, IS_BATCH, BROKER_NAME

cdef enum:
    # Of pulls; GROUP, TOPIC, QUEUE_ID and SYS_FLAG as above.
    SUB_VERSION = 2, SUBSCRIPTION = 3, COMMIT_OFFSET = 6, QUEUE_OFFSET = 7, EXPRESSION_TYPE = 8, COUNT_MAX = 9,
    IS_BULK = 10, BYTES_MAX = 11, SUSPEND_MS = 12

cdef enum:
    NOTHING, TEXT, ESCAPED, NUMBER, TRUE, FALSE

cdef struct Value:
    View view
    int kind
    bint is_ascii

cdef struct Request:
    int code
    int flag
    int opaque
    bint is_binary
    Value fields[FIELD_COUNT]


cdef inline Bytes skip_blanks(Bytes at, Bytes end) noexcept nogil:
    while at < end and (at[0] == 32 or at[0] == 10 or at[0] == 13 or at[0] == 9):
        at += 1
    return at


cdef Bytes scan_text(Bytes at, Bytes end, Value *value) noexcept nogil:
    # A text whose opening quote is at `at`; gives what follows it, or NULL.
    cdef unsigned char char
    cdef unsigned char seen = 0
    value.kind = TEXT
    at += 1
    value.view.at = at
    while at < end:
        char = at[0]
        if char == c'"':
            value.view.size = at - value.view.at
            value.is_ascii = not seen & 0x80
            return at + 1
        if char < 0x20:
            return NULL
        if char == c"\\":
            value.kind = ESCAPED
            at += 1
        seen |= char
        at += 1
    return NULL


cdef inline bint is_number(View view) noexcept nogil:
    # Digits as JSON writes a whole number: no leading zero, no plus.
    cdef Bytes at = view.at
    cdef Bytes end = at + view.size
    if at < end and at[0] == c"-":
        at += 1
    if at == end or end - at > 19 or (at[0] == c"0" and view.size > 1):
        return False
    while at < end:
        if at[0] < 48 or at[0] > 57:
            return False
        at += 1
    return True


cdef inline bint is_before(Bytes at, Bytes end, const char *word, Py_ssize_t size) noexcept nogil:
    return end - at >= size and memcmp(at, word, size) == 0


cdef Bytes scan_value(Bytes at, Bytes end, Value *value) noexcept nogil:
    # A text, a whole number, true or false.
    if at >= end:
        return NULL
    if at[0] == c'"':
        return scan_text(at, end, value)
    value.view.at = at
    value.is_ascii = True
    if is_before(at, end, b"true", 4):
        value.kind = TRUE
        return at + 4
    if is_before(at, end, b"false", 5):
        value.kind = FALSE
        return at + 5
    value.kind = NUMBER
    while at < end and (at[0] == c"-" or 48 <= at[0] <= 57):
        at += 1
    value.view.size = at - value.view.at
    if at < end and (at[0] == c"." or at[0] == c"e" or at[0] == c"E"):
        return NULL
    return at if is_number(value.view) else NULL


cdef int long_send_field(View name) noexcept nogil:
    # The field of a send that has this name in code 10; -1: none that matters.
    if name.size == 5:
        return TOPIC if memcmp(name.at, b"topic", 5) == 0 else IS_BATCH if memcmp(name.at, b"batch", 5) == 0 else -1
    if name.size == 7:
        return QUEUE_ID if memcmp(name.at, b"queueId", 7) == 0 else SYS_FLAG if memcmp(name.at, b"sysFlag", 7) == 0 else -1
    if is_same(name, b"flag", 4):
        return FLAG
    if is_same(name, b"properties", 10):
        return PROPERTIES
    if is_same(name, b"bornTimestamp", 13):
        return BORN_MS
    if is_same(name, b"producerGroup", 13):
        return GROUP
    if is_same(name, b"defaultTopic", 12):
        return DEFAULT_TOPIC
    if is_same(name, b"defaultTopicQueueNums", 21):
        return QUEUE_COUNT
    if is_same(name, b"reconsumeTimes", 14):
        return RECONSUME_TIMES
    if is_same(name, b"unitMode", 8):
        return UNIT_MODE
    if is_same(name, b"maxReconsumeTimes", 17):
        return MAX_RECONSUME_TIMES
    return -1


cdef int pull_field(View name) noexcept nogil:
    if is_same(name, b"topic", 5):
        return TOPIC
    if is_same(name, b"queueId", 7):
        return QUEUE_ID
    if is_same(name, b"sysFlag", 7):
        return SYS_FLAG
    if is_same(name, b"queueOffset", 11):
        return QUEUE_OFFSET
    if is_same(name, b"maxMsgNums", 10):
        return COUNT_MAX
    if is_same(name, b"consumerGroup", 13):
        return GROUP
    if is_same(name, b"commitOffset", 12):
        return COMMIT_OFFSET
    if is_same(name, b"suspendTimeoutMillis", 20):
        return SUSPEND_MS
    if is_same(name, b"subVersion", 10):
        return SUB_VERSION
    if is_same(name, b"subscription", 12):
        return SUBSCRIPTION
    if is_same(name, b"expressionType", 14):
        return EXPRESSION_TYPE
    if is_same(name, b"maxMsgBytes", 11):
        return BYTES_MAX
    if is_same(name, b"bulk", 4):
        return IS_BULK
    return -1


cdef inline int field_of(int code, View name) noexcept nogil:
    if code == 310 or code == 320:
        return name.at[0] - c"a" if name.size == 1 and c"a" <= name.at[0] <= c"n" else -1
    return long_send_field(name) if code == 10 else pull_field(name)


cdef inline bint is_ours(int code) noexcept nogil:
    return code == 310 or code == 10 or code == 320 or code == 11


cdef bint set_field(Request *request, View name, Value *value) noexcept nogil:
    cdef int field = field_of(request.code, name)
    if not value.is_ascii and field != PROPERTIES:
        return False
    if field < 0:
        return True
    if request.fields[field].kind != NOTHING:
        return False
    request.fields[field] = value[0]
    return True


cdef Bytes scan_fields(Bytes at, Bytes end, Request *request) noexcept nogil:
    # The object of ext fields whose brace is at `at`.
    cdef Value name, value
    at = skip_blanks(at + 1, end)
    if at < end and at[0] == c"}":
        return at + 1
    while at < end and at[0] == c'"':
        at = scan_text(at, end, &name)
        if at == NULL or name.kind != TEXT or not name.is_ascii:
            return NULL
        at = skip_blanks(at, end)
        if at >= end or at[0] != c":":
            return NULL
        at = scan_value(skip_blanks(at + 1, end), end, &value)
        if at == NULL or not set_field(request, name.view, &value):
            return NULL
        at = skip_blanks(at, end)
        if at >= end:
            return NULL
        if at[0] == c"}":
            return at + 1
        if at[0] != c",":
            return NULL
        at = skip_blanks(at + 1, end)
    return NULL


cdef Bytes skip_fields(Bytes at, Bytes end) noexcept nogil:
    # Pass over the object of ext fields: the request's code stands behind it.
    cdef Value text
    at += 1
    while at < end and at[0] != c"}":
        if at[0] == c'"':
            at = scan_text(at, end, &text)
            if at == NULL:
                return NULL
        elif at[0] == c"{" or at[0] == c"[":
            return NULL
        else:
            at += 1
    return at + 1 if at < end else NULL


cdef enum:
    HAS_CODE = 1
    HAS_FLAG = 2
    HAS_OPAQUE = 4
    HAS_FIELDS = 8
    HAS_ALL = 15


cdef int note_top(View name, Value *value, Request *request) noexcept nogil:
    # Take one of the header's own numbers; gives its bit, 0: it does not matter, -1: it is odd.
    cdef long long number
    cdef int bit
    if is_same(name, b"code", 4):
        bit = HAS_CODE
    elif is_same(name, b"flag", 4):
        bit = HAS_FLAG
    elif is_same(name, b"opaque", 6):
        bit = HAS_OPAQUE
    else:
        return 0 if value.is_ascii else -1
    if value.kind != NUMBER or not number_of(value, &number) or number != <int>number:
        return -1
    if bit == HAS_CODE:
        request.code = <int>number
    elif bit == HAS_FLAG:
        request.flag = <int>number
    else:
        request.opaque = <int>number
    return bit


cdef bint scan_json(Bytes at, Bytes end, Request *request) noexcept nogil:
    # A whole header; False: it is not ours.
    cdef Value name, value
    cdef Bytes fields = NULL
    cdef int seen = 0
    cdef int bit
    memset(request, 0, sizeof(Request))
    at = skip_blanks(at, end)
    if at >= end or at[0] != c"{":
        return False
    at = skip_blanks(at + 1, end)
    while at < end and at[0] == c'"':
        at = scan_text(at, end, &name)
        if at == NULL or name.kind != TEXT:
            return False
        at = skip_blanks(at, end)
        if at >= end or at[0] != c":":
            return False
        at = skip_blanks(at + 1, end)
        if at < end and at[0] == c"{" and is_same(name.view, b"extFields", 9):
            bit = HAS_FIELDS
            if not seen & HAS_CODE:
                fields = at
                at = skip_fields(at, end)
            elif is_ours(request.code):
                at = scan_fields(at, end, request)
            else:
                return False
        elif is_before(at, end, b"null", 4) and is_same(name.view, b"remark", 6):
            bit = 0
            at += 4
        else:
            at = scan_value(at, end, &value)
            bit = note_top(name.view, &value, request) if at != NULL else -1
        if at == NULL or bit < 0 or seen & bit:
            return False
        seen |= bit
        at = skip_blanks(at, end)
        if at >= end:
            return False
        if at[0] == c"}":
            break
        if at[0] != c",":
            return False
        at = skip_blanks(at + 1, end)
    if seen != HAS_ALL or at >= end or at[0] != c"}" or skip_blanks(at + 1, end) != end or not is_ours(request.code):
        return False
    return fields == NULL or scan_fields(fields, end, request) != NULL


cdef bint number_of(Value *value, long long *number) noexcept nogil:
    # What a number, or a text that is one, says.
    cdef Bytes at = value.view.at
    cdef Bytes end
    cdef unsigned long long sum = 0
    cdef bint is_negative
    if (value.kind != NUMBER and value.kind != TEXT) or not is_number(value.view):
        return False
    end = at + value.view.size
    is_negative = at[0] == c"-"
    if is_negative:
        at += 1
    while at < end:
        sum = sum * 10 + (at[0] - 48)  # 19 digits fit
        at += 1
    if sum > 0x7FFFFFFFFFFFFFFFULL or (is_negative and sum == 0):
        return False
    number[0] = -<long long>sum if is_negative else <long long>sum
    return True


cdef bint int32_of(Value *value, int *number) noexcept nogil:
    cdef long long wide
    if not number_of(value, &wide) or wide != <int>wide:
        return False
    number[0] = <int>wide
    return True


cdef int truth_of(Value *value) noexcept nogil:
    # 1 and 0 for what all readers take for true and false; -1: odd.
    if value.kind == NOTHING or value.kind == FALSE:
        return 0
    if value.kind == TRUE:
        return 1
    if value.kind == TEXT:
        if is_same(value.view, b"false", 5) or is_same(value.view, b"0", 1):
            return 0
        if is_same(value.view, b"true", 4):
            return 1
    return -1


cdef inline int hex_digit(unsigned char char) noexcept nogil:
    if 48 <= char <= 57:
        return char - 48
    char |= 0x20
    return char - 87 if c"a" <= char <= c"f" else -1


cdef int hex4(Bytes at, Bytes end) noexcept nogil:
    # The number that four hex digits are; -1: they are none.
    cdef int value = 0
    cdef int digit, count
    if end - at < 4:
        return -1
    for count in range(4):
        digit = hex_digit(at[count])
        if digit < 0:
            return -1
        value = value << 4 | digit
    return value


cdef Py_ssize_t unescape(View view, unsigned char *into) noexcept nogil:
    # Write what a JSON text means, as UTF-8: never longer than it was. Gives its size, -1: not ours.
    cdef Bytes at = view.at
    cdef Bytes end = at + view.size
    cdef unsigned char *out = into
    cdef unsigned char char
    cdef int value, low
    while at < end:
        char = at[0]
        if char != c"\\":
            out[0] = char
            out += 1
            at += 1
            continue
        if end - at < 2:
            return -1
        char = at[1]
        at += 2
        if char == c"u":
            value = hex4(at, end)
            at += 4
            if value < 0:
                return -1
            if 0xD800 <= value <= 0xDFFF:
                low = hex4(at + 2, end) if end - at >= 6 and at[0] == c"\\" and at[1] == c"u" else -1
                if value > 0xDBFF or not 0xDC00 <= low <= 0xDFFF:
                    return -1
                value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00)
                at += 6
            out = store_utf8(out, value)
            continue
        if char == c"b":
            char = 8
        elif char == c"t":
            char = 9
        elif char == c"n":
            char = 10
        elif char == c"f":
            char = 12
        elif char == c"r":
            char = 13
        elif char != c'"' and char != c"\\" and char != c"/":
            return -1
        out[0] = char
        out += 1
    return out - into


cdef inline unsigned char *store_utf8(unsigned char *at, unsigned int char) noexcept nogil:
    if char < 0x80:
        at[0] = <unsigned char>char
        return at + 1
    if char < 0x800:
        at[0] = <unsigned char>(0xC0 | char >> 6)
        at[1] = <unsigned char>(0x80 | (char & 0x3F))
        return at + 2
    if char < 0x10000:
        at[0] = <unsigned char>(0xE0 | char >> 12)
        at[1] = <unsigned char>(0x80 | (char >> 6 & 0x3F))
        at[2] = <unsigned char>(0x80 | (char & 0x3F))
        return at + 3
    at[0] = <unsigned char>(0xF0 | char >> 18)
    at[1] = <unsigned char>(0x80 | (char >> 12 & 0x3F))
    at[2] = <unsigned char>(0x80 | (char >> 6 & 0x3F))
    at[3] = <unsigned char>(0x80 | (char & 0x3F))
    return at + 4
