# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled twin of the plain core: the same names, the same answers, the same bytes.

In: the bytes of one read and the state. Out: as in `orbitmq.core.plain`, which is the one to read first.

Rules:
1. Only the ordinary case is handled; the first frame that is not ours is handed back, and nothing behind it is touched.
2. Whatever comes from outside is compared with its end before it is read: see `compiled_parts/scan.pxi`.
3. What can fail comes before what changes the state.
4. `tests/core/test_cores_agree.py` compares the two cores.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

from orbitmq.core import state as shared
from orbitmq.core.admit import Refusal, Way, admit
from orbitmq.core.plain import (
    BATCH_COUNT_MAX as _BATCH_COUNT_MAX,
    EVERYTHING,
    PULL_ANSWER,
    PULLED_SIZE_MAX as _PULLED_SIZE_MAX,
    BatchColumns,
    BatchStamp,
    Gathered,
    PullStatus,
    ReadResult,
    Stamp,
    end_of,
    next_frame,
)
from orbitmq.core.plain_rows import AGE_S_MAX as _AGE_S_MAX, rows_of
from orbitmq.core.record_keys import WORDS_MAX as _WORDS_MAX
from orbitmq.core.state import (
    BINARY_ANSWER_BEGIN as _BINARY_ANSWER_BEGIN,
    Got,
    Staged,
    binary_send_answer_end,
    send_answer_parts,
    send_answer_template,
    topic_field,
)
from orbitmq.ensure import ensure
from orbitmq.watermark import Watermark
from orbitmq.wire import command as _command, frame as _frame, headers_client as _headers
from orbitmq.wire import properties as _properties, record as _record, sysflag as _sysflag

cdef extern from "Python.h":
    Py_buffer *PyMemoryView_GET_BUFFER(object view)

cdef extern from "crc.h":
    int orbitmq_crc_prepare(int may_fold)
    unsigned int orbitmq_crc32(const unsigned char *data, size_t size) nogil

cdef enum:
    ENTRY_SIZE = 20
    RETAINED_MAX = 8388608

cdef Py_ssize_t PULLED_SIZE_MAX = _PULLED_SIZE_MAX
cdef Py_ssize_t HEADER_SIZE_MAX = _command.HEADER_SIZE_MAX
cdef Py_ssize_t FIELD_COUNT_MAX = _command.FIELD_COUNT_MAX
cdef bytes BINARY_BEGIN = _BINARY_ANSWER_BEGIN
cdef Py_ssize_t FRAME_SIZE_MAX = _frame.FRAME_SIZE_MAX
cdef Py_ssize_t PROPERTIES_SIZE_MAX = _properties.PROPERTIES_SIZE_MAX
cdef Py_ssize_t BULK_COUNT_MAX = shared.BULK_COUNT_MAX
cdef Py_ssize_t BLANK_SIZE = _record.BLANK_SIZE
cdef long long SCAN_COUNT_LEAST = shared.SCAN_COUNT_LEAST
cdef long long COPY_BELOW_BYTES = _frame.COPY_BELOW_BYTES
cdef int PULL_COMMITS = _headers.PULL_COMMITS
cdef int PULL_HAS_SUBSCRIPTION = _headers.PULL_HAS_SUBSCRIPTION
cdef unsigned int BLANK_MAGIC = _record.BLANK_MAGIC
cdef unsigned int MAGIC_V1 = _record.MAGIC_V1
cdef unsigned int MAGIC_V2 = _record.MAGIC_V2
cdef Py_ssize_t BATCH_COUNT_MAX = _BATCH_COUNT_MAX
cdef int WORDS_MAX = _WORDS_MAX
cdef long long AGE_S_MAX = _AGE_S_MAX
cdef int FLAG_ONEWAY = _command.FLAG_ONEWAY
cdef int SENDER_BITS = _sysflag.SENDER_BITS
cdef int OUTSIDE_QUEUE = _sysflag.OUTSIDE_QUEUE
cdef int TRANSACTION_MASK = _sysflag.TRANSACTION_MASK
cdef int ROLLBACK = int(_sysflag.Transaction.ROLLBACK)
cdef int BORN_HOST_V6 = _sysflag.BORN_HOST_V6
cdef int STORE_HOST_V6 = _sysflag.STORE_HOST_V6

include "compiled_parts/memory.pxi"
include "compiled_parts/scan.pxi"
include "compiled_parts/state.pxi"
include "compiled_parts/core_state.pxi"
include "compiled_parts/rows.pxi"
include "compiled_parts/append.pxi"
include "compiled_parts/binary.pxi"
include "compiled_parts/send.pxi"
include "compiled_parts/batch.pxi"
include "compiled_parts/filter.pxi"
include "compiled_parts/pull.pxi"
include "compiled_parts/read.pxi"

CRC_FOLDS = bool(orbitmq_crc_prepare(1))
"""Whether the processor makes checksums by carry-less multiplication."""


def crc32(data, *, bint may_fold=True):
    """Return the CRC-32 of bytes, as zlib does; `may_fold`: by the processor's own means."""
    cdef bytes kept = as_bytes(data)
    orbitmq_crc_prepare(may_fold)
    try:
        return orbitmq_crc32(<Bytes>PyBytes_AS_STRING(kept), PyBytes_GET_SIZE(kept))
    finally:
        orbitmq_crc_prepare(1)
