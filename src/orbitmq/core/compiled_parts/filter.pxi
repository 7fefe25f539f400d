# SQL filters: a program's steps, run over the properties in a record's bytes; see `orbitmq.sql.program`.
#
# Rules:
# 1. What is odd is left to the expression's functions in Python: a text beyond ASCII, a double that is no plain decimal
#    one, a long search, a record whose sizes do not add up.
# 2. Operands are evaluated in their order and as far as they decide: the first that cannot be compared ends it all.

from orbitmq.sql import program as _program
from orbitmq.sql.numbers import NUMBER_CHARS_MAX as _NUMBER_CHARS_MAX
from orbitmq.sql.compiler import PLAIN_SEARCH_MAX as _PLAIN_SEARCH_MAX
from orbitmq.wire.properties import parse_properties
from orbitmq.wire.record import properties_of

cdef extern from "Python.h":
    double PyOS_string_to_double(const char *text, char **end, void *overflow) except? -1.0

cdef enum:
    FILTER_NAMES_MAX = 16
    NUMBER_SIZE_MAX = 64

cdef enum:
    # `orbitmq.sql.program.Op`.
    ALL_OF, ANY_OF, NOT_IT, CONSTANT, EXISTS, IS_NULL, EQUALS_TEXT, EQUALS_TRUTH, COMPARE_WHOLE, COMPARE_DOUBLE,
    COMPARE_PROPERTIES, AMONG, CONTAINS, STARTS_WITH, ENDS_WITH

cdef enum:
    # `orbitmq.sql.program.Sign`.
    LESS, AT_MOST, GREATER, AT_LEAST, EQUAL

cdef enum:
    # What a step says. FAILED: cannot be compared; ODD: Python must say.
    NO, YES, UNKNOWN, FAILED, ODD

ensure(
    (_program.NAMES_MAX, _NUMBER_CHARS_MAX, len(_program.Op), len(_program.Sign))
    == (FILTER_NAMES_MAX, NUMBER_SIZE_MAX, ENDS_WITH + 1, EQUAL + 1),
    "both sides know the same programs",
)

cdef Py_ssize_t PLAIN_SEARCH_MAX = _PLAIN_SEARCH_MAX

cdef struct Step:
    int op
    int sign
    int name
    int other
    bint is_long
    bint is_true
    int if_missing
    Py_ssize_t after
    long long whole
    double real
    View text
    Py_ssize_t set_number
    Py_ssize_t longest


cdef class SqlFilter:
    """Whether a whole record passes an expression; see `orbitmq.core.plain_filter`."""

    cdef object expression
    cdef object program
    cdef Buffer steps
    cdef list sets
    cdef Py_ssize_t step_count
    cdef Py_ssize_t search_count
    cdef int name_count
    cdef View names[FILTER_NAMES_MAX]

    def __init__(self, expression not None):
        self.expression = expression
        self.program = expression.program  # keeps the texts
        self.steps, self.sets = Buffer(), []
        self.step_count = self.search_count = self.name_count = 0
        if self.program is None:
            return
        for name in self.program.names:
            self.names[self.name_count] = view_of(name)
            self.name_count += 1
        for step in self.program.steps:
            self.add(step)

    cdef int add(self, source) except -1:
        cdef Step step
        memset(&step, 0, sizeof(Step))
        step.op, step.sign, step.name, step.other = source.op, source.sign, source.name, source.other
        step.is_long, step.is_true, step.after = source.is_long, source.is_true, source.after
        step.if_missing = NO if source.is_false_if_missing else UNKNOWN
        step.text = view_of(source.text)
        if step.op == COMPARE_WHOLE:
            step.whole = source.number
        elif step.op == COMPARE_DOUBLE:
            step.real = source.number
        elif step.op == AMONG:
            step.set_number, step.longest = len(self.sets), max(map(len, source.texts))
            self.sets.append(source.texts)
        self.search_count += step.op >= EQUALS_TEXT
        self.steps.add(<Bytes>&step, sizeof(Step))
        self.step_count += 1
        return 0

    def __call__(self, record) -> bool:
        cdef Py_buffer buffer
        cdef View view
        cdef View properties
        cdef int found
        PyObject_GetBuffer(record, &buffer, PyBUF_SIMPLE)
        try:
            view.at, view.size = <Bytes>buffer.buf, buffer.len
            found = self.judge(properties) if find_properties(view, &properties) else ODD
        finally:
            PyBuffer_Release(&buffer)
        if found == ODD:
            return self.expression.accepts(parse_properties(properties_of(record)))
        return found == YES

    cdef int judge(self, View properties) except -1:
        cdef View found[FILTER_NAMES_MAX]
        if self.step_count == 0:
            return ODD
        memset(found, 0, sizeof(found))
        find_values(properties, self.names, self.name_count, found)
        return run(self, 0, found)

    cdef Py_ssize_t work(self, Py_ssize_t properties_size) noexcept:
        # What one record may cost, in steps of some nanoseconds at most.
        return properties_size * (1 + self.name_count // 4 + self.search_count // 4) + 32 * self.step_count


cdef bint find_properties(View record, View *properties) noexcept nogil:
    # Where the properties of a whole record lie; False when its sizes do not add up.
    cdef int sys_flag
    cdef unsigned int magic
    cdef Py_ssize_t at = 88
    cdef Py_ssize_t size
    if record.size < 91:
        return False
    sys_flag, magic = load_i32(record.at + 36), load_u32(record.at + 4)
    at += 12 if sys_flag & BORN_HOST_V6 else 0
    at += 12 if sys_flag & STORE_HOST_V6 else 0
    size = load_i32(record.at + at - 4) if at <= record.size else -1
    if size < 0 or size > record.size - at - 3:
        return False
    at += size
    if magic == MAGIC_V1 and record.at[at] < 0x80:
        at += 1 + record.at[at]
    elif magic == MAGIC_V2 and record.at[at] < 0x80:
        at += 2 + load_u16(record.at + at)
    else:
        return False
    if at + 2 > record.size or at + 2 + load_u16(record.at + at) != record.size:
        return False
    properties.at, properties.size = record.at + at + 2, record.size - at - 2
    return True


cdef void find_values(View properties, View *names, int name_count, View *found) noexcept nogil:
    # The value of each name, as `parse_properties` has it: the last one that is not empty.
    cdef Bytes at = properties.at
    cdef Bytes end = at + properties.size
    cdef Bytes name_end
    cdef Bytes entry_end
    cdef Py_ssize_t name_size
    cdef int number
    while at < end:
        entry_end = <Bytes>memchr(at, 2, end - at)
        if entry_end == NULL:
            entry_end = end
        name_end = <Bytes>memchr(at, 1, entry_end - at)
        if name_end != NULL and entry_end - name_end > 1:
            name_size = name_end - at
            for number in range(name_count):
                if names[number].size == name_size and memcmp(names[number].at, at, name_size) == 0:
                    found[number].at, found[number].size = name_end + 1, entry_end - name_end - 1
        at = entry_end + 1


cdef int run(SqlFilter self, Py_ssize_t at, View *found) except -1:
    # What the step at a place says.
    cdef Step *step = <Step *>self.steps.start() + at
    cdef View *value = &found[step.name]
    cdef int said
    if step.op == ALL_OF:
        return run_joined(self, at, found, NO)
    if step.op == ANY_OF:
        return run_joined(self, at, found, YES)
    if step.op == NOT_IT:
        said = run(self, at + 1, found)
        return NO if said == YES else YES if said == NO else said
    if step.op == CONSTANT:
        return step.is_true
    if step.op == EXISTS:
        return UNKNOWN if value.at == NULL else NO
    if step.op == IS_NULL:
        return (value.at == NULL) != step.is_true
    if step.op >= CONTAINS:
        return run_search(step, value)
    if value.at == NULL:
        return step.if_missing
    if not is_ascii(value.at, value.size):
        return ODD
    if step.op == EQUALS_TEXT:
        return is_same(value[0], <const char *>step.text.at, step.text.size)
    if step.op == EQUALS_TRUTH:
        return is_true_text(value) == step.is_true
    if step.op == COMPARE_WHOLE:
        return run_whole(step, value)
    if step.op == COMPARE_DOUBLE:
        return run_double(step, value)
    if step.op == COMPARE_PROPERTIES:
        return run_properties(step, value, &found[step.other])
    if value.size > step.longest:  # a long text is not hashed for each set
        return step.is_true
    text = PyBytes_FromStringAndSize(<const char *>value.at, value.size)
    return (text in <frozenset>self.sets[step.set_number]) != step.is_true


cdef int run_joined(SqlFilter self, Py_ssize_t at, View *found, int decisive) except -1:
    # AND ends with the first NO, OR with the first YES.
    cdef Step *steps = <Step *>self.steps.start()
    cdef Py_ssize_t end = steps[at].after
    cdef int result = YES if decisive == NO else NO
    cdef int said
    at += 1
    while at < end:
        said = run(self, at, found)
        if said == decisive or said >= FAILED:
            return said
        if said == UNKNOWN:
            result = UNKNOWN
        at = steps[at].after
    return result


cdef int run_search(Step *step, View *value) noexcept nogil:
    cdef bint is_in = False
    cdef Bytes at = value.at
    cdef Bytes last
    if at == NULL:
        return NO
    if not is_ascii(at, value.size):
        return ODD
    if step.op == CONTAINS and value.size * step.text.size > PLAIN_SEARCH_MAX:
        return ODD
    if value.size >= step.text.size:
        last = at + (value.size - step.text.size)
        if step.op == STARTS_WITH:
            last = at
        elif step.op == ENDS_WITH:
            at = last
        while at <= last and not is_in:
            is_in = memcmp(at, step.text.at, step.text.size) == 0
            at += 1
    return is_in != step.is_true


cdef bint is_true_text(View *value) noexcept nogil:
    # Whether it is TRUE, whatever the case of its letters.
    return (
        value.size == 4
        and value.at[0] | 32 == c"t"
        and value.at[1] | 32 == c"r"
        and value.at[2] | 32 == c"u"
        and value.at[3] | 32 == c"e"
    )


cdef int said_of(int sign, bint is_less, bint is_greater) noexcept nogil:
    if sign == LESS:
        return is_less
    if sign == AT_MOST:
        return not is_greater
    if sign == GREATER:
        return is_greater
    if sign == AT_LEAST:
        return not is_less
    return not is_less and not is_greater


cdef int run_whole(Step *step, View *value) noexcept nogil:
    # The value as a number of 32 or 64 bits.
    cdef Bytes at = value.at
    cdef Bytes end = at + value.size
    cdef unsigned long long number = 0
    cdef unsigned long long most = <unsigned long long>1 << 63 if step.is_long else <unsigned long long>1 << 31
    cdef bint is_negative = at[0] == c"-"
    cdef long long whole
    if value.size > NUMBER_SIZE_MAX:
        return FAILED
    if at[0] == c"-" or at[0] == c"+":
        at += 1
    if at == end:
        return FAILED
    while at < end:
        if at[0] < 48 or at[0] > 57 or number > most // 10:
            return FAILED
        number = number * 10 + (at[0] - 48)
        at += 1
    if number > (most if is_negative else most - 1):
        return FAILED
    whole = <long long>(0 - number) if is_negative else <long long>number
    return said_of(step.sign, whole < step.whole, whole > step.whole)


cdef Bytes skip_digits(Bytes at, Bytes end) noexcept nogil:
    while at < end and 48 <= at[0] <= 57:
        at += 1
    return at


cdef int read_double(View *value, double *number) except -1:
    # YES with the number, FAILED, or ODD for what is no plain decimal number.
    cdef char text[NUMBER_SIZE_MAX + 1]
    cdef Bytes start = value.at
    cdef Bytes end = start + value.size
    cdef Bytes at
    cdef Bytes digits
    cdef Py_ssize_t digit_count
    if value.size > NUMBER_SIZE_MAX:
        return FAILED
    while start < end and start[0] <= 32:
        start += 1
    while start < end and (end - 1)[0] <= 32:
        end -= 1
    at = start
    if at < end and (at[0] == c"-" or at[0] == c"+"):
        at += 1
    digits = at
    at = skip_digits(at, end)
    digit_count = at - digits
    if at < end and at[0] == c".":
        digits = at + 1
        at = skip_digits(digits, end)
        digit_count += at - digits
    if digit_count == 0 or at < end:
        return ODD
    memcpy(text, start, end - start)
    text[end - start] = 0
    number[0] = PyOS_string_to_double(text, NULL, NULL)
    return YES


cdef int run_double(Step *step, View *value) except -1:
    cdef double number = 0
    cdef int said = read_double(value, &number)
    return said_of(step.sign, number < step.real, number > step.real) if said == YES else said


cdef int run_properties(Step *step, View *left, View *right) except -1:
    # Two doubles in Java's order, where -0.0 is before 0.0.
    cdef double a = 0, b = 0
    cdef long long place_a, place_b
    cdef int said
    if right.at == NULL:
        return UNKNOWN
    if not is_ascii(right.at, right.size):
        return ODD
    said = read_double(left, &a)
    if said == YES:
        said = read_double(right, &b)
    if said != YES:
        return said
    place_a, place_b = place_of(a), place_of(b)
    return said_of(step.sign, place_a < place_b, place_a > place_b)


cdef inline long long place_of(double number) noexcept nogil:
    cdef long long bits
    memcpy(&bits, &number, 8)
    return bits if bits >= 0 else -(bits & 0x7FFFFFFFFFFFFFFFLL) - 1
