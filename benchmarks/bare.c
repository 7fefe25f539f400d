/* A bare server: the least that storing and serving messages can cost in C, a limit to compare with.
 *
 * Build: gcc -O2 -o bare bare.c
 * Use:   bare FOLDER       prints `ready broker=127.0.0.1:PORT` and serves until it is killed
 *
 * It cuts frames, scans their JSON headers, and for sends (310) and batches (320) puts record with
 * CRC, queue entry and index entry into mapped files in RocketMQ's formats, and answers with message
 * ids and offsets. Pulls (11) find their records through the queue entries. One thread, one write a
 * read. Nothing is checked, counted, synced, recovered or configured; there are four queues, of any
 * topic. What a broker costs above this is what being a broker costs.
 *
 * Rules: log files of 1 GiB grow as a broker's do, so both pay for fresh pages. When the last client
 * has gone, all but the first file, which pulls read, and the newest are removed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "numbers.h"

#define QUEUES 4
#define PULL_MAX 32
#define LOG_SIZE ((uint64_t)1 << 30)
#define LOG_FILES_MAX 1024             /* since the start */
#define QUEUE_SIZE ((uint64_t)1 << 30) /* sparse */
#define QUEUE_ENTRY 20
#define INDEX_HEADER 40
#define INDEX_SLOTS 5000000
#define INDEX_ENTRIES 20000000
#define INDEX_ENTRY 20
#define RECORD_HEAD 88
#define RECORD_MAGIC 0xDAA320A7u
#define BLANK_MAGIC 0xCBD43194u
#define IN_SIZE ((size_t)4 << 20)  /* of a connection; memory is taken when it is used */
#define OUT_SIZE ((size_t)8 << 20) /* more than the answers to all that fits into IN_SIZE */
#define PARTS_MAX 65536
#define WRITEV_MAX 1024
#define EVENTS_MAX 256
#define UNIQUE_KEY "UNIQ_KEY\x01"

struct view {
    const uint8_t *at;
    size_t size;
};

/* What is needed of a request's header. The fields of sends have names of one letter. */
struct header {
    struct view code, opaque, topic, queue_id, queue_offset, letters[26];
};

struct message {
    struct view topic, properties, body;
    uint32_t queue_id, flag, sys_flag, reconsumed;
    uint64_t born_ms;
};

struct connection {
    int fd;
    uint8_t host[8];
    uint8_t *in, *left; /* `left`: answers that the socket did not take yet */
    size_t in_size, left_size, left_sent;
};

static const char *folder;
static uint8_t *logs[LOG_FILES_MAX], *queues[QUEUES], *index_map;
static size_t log_file, log_at; /* the newest log file, and where it ends */
static uint64_t queue_ends[QUEUES];
static uint32_t index_count = 1;
static int64_t began_ms, now_ms;
static uint8_t own_host[8];
static int epoll_fd, listener, client_count;

/* The answers to one read: pieces of `out`, and of the log. */
static uint8_t out[OUT_SIZE];
static size_t out_size, out_taken; /* `out_taken`: how much of it `parts` has */
static struct iovec parts[PARTS_MAX];
static int part_count;

static void die(const char *why) {
    perror(why);
    exit(1);
}

static void write_u64(uint8_t *p, uint64_t value) {
    write_u32(p, value >> 32);
    write_u32(p + 4, value);
}

static uint64_t read_u64(const uint8_t *p) { return (uint64_t)read_u32(p) << 32 | read_u32(p + 4); }

static uint64_t number(struct view digits) {
    uint64_t value = 0;
    for (size_t i = 0; i < digits.size; i++) value = value * 10 + (digits.at[i] - '0');
    return value;
}

/* ---- checksums ------------------------------------------------------------------------------- */

static uint32_t crc_table[256];

static void make_crc_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
        crc_table[i] = c;
    }
}

#if defined(__x86_64__)
#define FOLD(x, k) _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11))
#define LOAD(p) _mm_loadu_si128((const __m128i *)(p))

/* "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009; `size` is
 * a multiple of 16 and at least 64. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t fold_crc(const uint8_t *p, size_t size,
                                                                  uint32_t crc) {
    const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i x[4];
    for (int i = 0; i < 4; i++) x[i] = LOAD(p + 16 * i);
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128(crc));
    for (p += 64, size -= 64; size >= 64; p += 64, size -= 64)
        for (int i = 0; i < 4; i++) x[i] = _mm_xor_si128(FOLD(x[i], by_512), LOAD(p + 16 * i));
    __m128i one = x[0];
    for (int i = 1; i < 4; i++) one = _mm_xor_si128(FOLD(one, by_128), x[i]);
    for (; size; p += 16, size -= 16) one = _mm_xor_si128(FOLD(one, by_128), LOAD(p));
    one = _mm_xor_si128(_mm_srli_si128(one, 8), _mm_clmulepi64_si128(one, by_128, 0x10));
    __m128i high = _mm_srli_si128(one, 4);
    one = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(one, low), by_64, 0x00), high);
    __m128i t = _mm_clmulepi64_si128(_mm_and_si128(one, low), barrett, 0x10);
    t = _mm_clmulepi64_si128(_mm_and_si128(t, low), barrett, 0x00);
    return _mm_extract_epi32(_mm_xor_si128(one, t), 1);
}
#endif

static uint32_t crc32(const uint8_t *p, size_t size) {
    uint32_t crc = ~0u;
#if defined(__x86_64__)
    if (size >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
        size_t whole = size & ~(size_t)15;
        crc = fold_crc(p, whole, crc);
        p += whole, size -= whole;
    }
#endif
    for (; size; size--) crc = crc_table[(crc ^ *p++) & 255] ^ crc >> 8;
    return ~crc;
}

/* ---- files ----------------------------------------------------------------------------------- */

static void name_file(char *path, size_t size, const char *kind, uint64_t number) {
    snprintf(path, size, "%s/%s-%020llu", folder, kind, (unsigned long long)number);
}

static uint8_t *map_file(const char *kind, uint64_t number, uint64_t size, int is_sparse) {
    char path[4096];
    name_file(path, sizeof path, kind, number);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || (errno = is_sparse ? 0 : posix_fallocate(fd, 0, size)) || ftruncate(fd, size))
        die(path);
    uint8_t *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) die(path);
    close(fd);
    return map;
}

static void drop_old_logs(void) {
    for (size_t i = 1; i < log_file; i++) {
        char path[4096];
        if (!logs[i]) continue;
        munmap(logs[i], LOG_SIZE);
        logs[i] = NULL;
        name_file(path, sizeof path, "log", i * LOG_SIZE);
        unlink(path);
    }
}

/* Makes room for a record in the newest log file. */
static void reserve(size_t size) {
    if (log_at + size + 8 <= LOG_SIZE) return;
    write_u32(logs[log_file] + log_at, LOG_SIZE - log_at);
    write_u32(logs[log_file] + log_at + 4, BLANK_MAGIC);
    if (++log_file == LOG_FILES_MAX) die("the log has too many files");
    logs[log_file] = map_file("log", log_file * LOG_SIZE, LOG_SIZE, 0);
    log_at = 0;
}

static uint32_t java_hash(uint32_t hash, struct view text) {
    for (size_t i = 0; i < text.size; i++) hash = hash * 31 + text.at[i];
    return hash;
}

static void add_to_index(const struct message *m, uint64_t offset) {
    size_t length = strlen(UNIQUE_KEY);
    const uint8_t *key = memmem(m->properties.at, m->properties.size, UNIQUE_KEY, length);
    if (!key) return;
    key += length;
    const uint8_t *end = memchr(key, 2, m->properties.at + m->properties.size - key);
    if (!end) end = m->properties.at + m->properties.size;
    uint32_t hash = java_hash(0, m->topic) * 31 + '#';
    hash = java_hash(hash, (struct view){key, end - key});
    hash = (int32_t)hash < 0 ? -hash : hash;
    if (index_count == INDEX_ENTRIES) index_count = 1; /* a broker would begin another file */
    uint8_t *slot = index_map + INDEX_HEADER + 4 * (size_t)(hash % INDEX_SLOTS);
    uint8_t *entry = index_map + INDEX_HEADER + 4 * (size_t)INDEX_SLOTS;
    entry += INDEX_ENTRY * (size_t)index_count;
    write_u32(entry, hash);
    write_u64(entry + 4, offset);
    write_u32(entry + 12, (now_ms - began_ms) / 1000);
    memcpy(entry + 16, slot, 4);
    write_u32(slot, index_count++);
}

static uint32_t tag_hash(struct view properties) {
    const uint8_t *tag = memmem(properties.at, properties.size, "TAGS\x01", 5);
    if (!tag) return 0;
    tag += 5;
    const uint8_t *end = memchr(tag, 2, properties.at + properties.size - tag);
    return end ? java_hash(0, (struct view){tag, end - tag}) : 0;
}

/* Puts a message into log, queue and index; gives its log offset. */
static uint64_t store(const struct connection *c, const struct message *m) {
    size_t size = RECORD_HEAD + m->body.size + 1 + m->topic.size + 2 + m->properties.size;
    reserve(size);
    uint64_t offset = log_file * LOG_SIZE + log_at, queue_offset = queue_ends[m->queue_id]++;
    uint8_t *p = logs[log_file] + log_at;
    log_at += size;
    write_u32(p, size);
    write_u32(p + 4, RECORD_MAGIC);
    write_u32(p + 8, crc32(m->body.at, m->body.size) & 0x7FFFFFFF);
    write_u32(p + 12, m->queue_id);
    write_u32(p + 16, m->flag);
    write_u64(p + 20, queue_offset);
    write_u64(p + 28, offset);
    write_u32(p + 36, m->sys_flag);
    write_u64(p + 40, m->born_ms);
    memcpy(p + 48, c->host, 8);
    write_u64(p + 56, now_ms);
    memcpy(p + 64, own_host, 8);
    write_u32(p + 72, m->reconsumed);
    write_u64(p + 76, 0);
    write_u32(p + 84, m->body.size);
    p = mempcpy(p + RECORD_HEAD, m->body.at, m->body.size);
    *p = m->topic.size;
    p = mempcpy(p + 1, m->topic.at, m->topic.size);
    write_u16(p, m->properties.size);
    memcpy(p + 2, m->properties.at, m->properties.size);
    if ((queue_offset + 1) * QUEUE_ENTRY > QUEUE_SIZE) die("a queue is full");
    uint8_t *entry = queues[m->queue_id] + queue_offset * QUEUE_ENTRY;
    write_u64(entry, offset);
    write_u32(entry + 8, size);
    write_u64(entry + 12, (int64_t)(int32_t)tag_hash(m->properties));
    add_to_index(m, offset);
    return offset;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void note(struct header *h, struct view name, struct view value) {
    switch (name.size) {
    case 1:
        if (*name.at >= 'a' && *name.at <= 'z') h->letters[*name.at - 'a'] = value;
        return;
    case 4:
        if (!memcmp(name.at, "code", 4)) h->code = value;
        return;
    case 5:
        if (!memcmp(name.at, "topic", 5)) h->topic = value;
        return;
    case 6:
        if (!memcmp(name.at, "opaque", 6)) h->opaque = value;
        return;
    case 7:
        if (!memcmp(name.at, "queueId", 7)) h->queue_id = value;
        return;
    case 11:
        if (!memcmp(name.at, "queueOffset", 11)) h->queue_offset = value;
    }
}

/* Finds the pairs of a JSON object and of the object inside it; values are left as they stand. */
static void scan(const uint8_t *p, const uint8_t *end, struct header *h) {
    while (p < end && (p = memchr(p, '"', end - p))) {
        struct view name = {p + 1, 0}, value;
        const uint8_t *close = memchr(name.at, '"', end - name.at);
        if (!close || close + 2 >= end) return;
        name.size = close - name.at;
        p = value.at = close + 2;
        if (*p == '"') {
            for (value.at = ++p; p < end && *p != '"';) p += *p == '\\' ? 2 : 1;
        } else {
            while (p < end && *p != ',' && *p != '}' && *p != '{') p++;
        }
        if (p > end) return;
        value.size = p - value.at;
        note(h, name, value);
        p++;
    }
}

static int hex_digit(uint8_t c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; }

/* Undoes the escapes of a JSON text below U+0100 into `to`, which has room for all of it. */
static struct view unescape(struct view text, uint8_t *to) {
    const uint8_t *p = text.at, *end = p + text.size;
    uint8_t *begin = to;
    while (p < end) {
        if (*p != '\\') {
            *to++ = *p++;
        } else if (p[1] == 'u' && end - p >= 6) {
            *to++ = hex_digit(p[4]) << 4 | hex_digit(p[5]);
            p += 6;
        } else {
            *to++ = p[1];
            p += 2;
        }
    }
    return (struct view){begin, to - begin};
}

/* ---- answers --------------------------------------------------------------------------------- */

static void add(const void *bytes, size_t size) {
    memcpy(out + out_size, bytes, size);
    out_size += size;
}

static void add_text(const char *text) { add(text, strlen(text)); }

/* Adds a number at the right end of `width` places. JSON allows blanks, texts of numbers zeros. */
static void add_number(uint64_t value, int width, char fill) {
    uint8_t *at = out + out_size + width;
    out_size += width;
    do *--at = '0' + value % 10;
    while (value /= 10);
    while (at > out + out_size - width) *--at = fill;
}

/* Begins an answer; gives where. */
static size_t begin_answer(int code) {
    size_t begin = out_size;
    out_size += 8;
    add_text("{\"code\":");
    add_number(code, 2, ' ');
    add_text(",\"extFields\":{");
    return begin;
}

static void end_answer(size_t begin, const struct header *h, size_t body_size) {
    add_text("},\"flag\":1,\"language\":\"JAVA\",\"opaque\":");
    add(h->opaque.at, h->opaque.size);
    add_text(",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":407}");
    write_u32(out + begin, out_size - begin - 4 + body_size);
    write_u32(out + begin + 4, out_size - begin - 8);
}

static void add_id(uint64_t offset) {
    uint8_t bytes[16];
    memcpy(bytes, own_host, 8);
    write_u64(bytes + 8, offset);
    for (int i = 0; i < 16; i++) {
        out[out_size++] = "0123456789ABCDEF"[bytes[i] >> 4];
        out[out_size++] = "0123456789ABCDEF"[bytes[i] & 15];
    }
}

static void end_send(size_t begin, const struct header *h, uint32_t queue_id, uint64_t offset) {
    add_text("\",\"queueId\":\"");
    add_number(queue_id, 1, '0');
    add_text("\",\"queueOffset\":\"");
    add_number(offset, 12, '0');
    add_text("\",\"MSG_REGION\":\"DefaultRegion\",\"TRACE_ON\":\"true\"");
    end_answer(begin, h, 0);
}

/* Stores the messages of a batch and lists their ids. */
static void store_batch(const struct connection *c, struct message *m, struct view body) {
    const uint8_t *p = body.at, *end = p + body.size;
    while (end - p >= 22) {
        uint32_t size = read_u32(p), body_size = read_u32(p + 16);
        if (size > (size_t)(end - p) || (uint64_t)body_size + 22 > size) return;
        m->flag = read_u32(p + 12);
        m->body = (struct view){p + 20, body_size};
        m->properties = (struct view){p + 22 + body_size, size - 22 - body_size};
        if (p != body.at) add_text(",");
        add_id(store(c, m));
        p += size;
    }
}

static void answer_send(const struct connection *c, const struct header *h, struct view body) {
    uint8_t texts[32768];
    struct view properties = h->letters['i' - 'a'];
    if (properties.size > sizeof texts) die("properties are too long");
    struct message m = {
        .topic = h->letters['b' - 'a'],
        .properties = unescape(properties, texts),
        .body = body,
        .queue_id = number(h->letters['e' - 'a']) % QUEUES,
        .flag = number(h->letters['h' - 'a']),
        .sys_flag = number(h->letters['f' - 'a']),
        .reconsumed = number(h->letters['j' - 'a']),
        .born_ms = number(h->letters['g' - 'a']),
    };
    uint64_t offset = queue_ends[m.queue_id];
    size_t begin = begin_answer(0);
    add_text("\"msgId\":\"");
    if (number(h->code) == 320)
        store_batch(c, &m, body);
    else
        add_id(store(c, &m));
    end_send(begin, h, m.queue_id, offset);
}

/* Closes the piece of `out` that is being made, so that bytes of the log can follow. */
static void end_part(void) {
    if (out_size == out_taken) return;
    if (part_count == PARTS_MAX) die("too many answers in one read");
    parts[part_count++] = (struct iovec){out + out_taken, out_size - out_taken};
    out_taken = out_size;
}

/* Collects up to PULL_MAX records from `offset` on; gives their number and sets their size. */
static int find_records(uint32_t queue_id, uint64_t offset, struct iovec *found, size_t *size) {
    int count = 0;
    for (*size = 0; count < PULL_MAX && offset < queue_ends[queue_id]; count++, offset++) {
        const uint8_t *entry = queues[queue_id] + offset * QUEUE_ENTRY;
        uint64_t at = read_u64(entry);
        if (!logs[at / LOG_SIZE]) break;
        found[count] = (struct iovec){logs[at / LOG_SIZE] + at % LOG_SIZE, read_u32(entry + 8)};
        *size += found[count].iov_len;
    }
    return count;
}

static void answer_pull(const struct header *h) {
    struct iovec found[PULL_MAX];
    uint32_t queue_id = number(h->queue_id) % QUEUES;
    uint64_t offset = number(h->queue_offset);
    size_t size, begin;
    int count = find_records(queue_id, offset, found, &size);
    begin = begin_answer(count ? 0 : 19);
    add_text("\"suggestWhichBrokerId\":\"0\",\"nextBeginOffset\":\"");
    add_number(offset + count, 12, '0');
    add_text("\",\"minOffset\":\"0\",\"maxOffset\":\"");
    add_number(queue_ends[queue_id], 12, '0');
    add_text("\"");
    end_answer(begin, h, size);
    end_part();
    if (part_count + count > PARTS_MAX) die("too many answers in one read");
    memcpy(parts + part_count, found, count * sizeof *found);
    part_count += count;
}

static void answer(const struct connection *c, const uint8_t *frame, size_t size) {
    struct header h = {0};
    size_t header_size = read_u32(frame + 4) & 0xFFFFFF;
    if (header_size > size - 8) die("a frame is broken");
    struct view body = {frame + 8 + header_size, size - 8 - header_size};
    scan(frame + 8, body.at, &h);
    if (number(h.code) == 11)
        answer_pull(&h);
    else
        answer_send(c, &h, body);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void watch(struct connection *c, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    epoll_ctl(epoll_fd, operation, c->fd, &event);
}

static void leave(struct connection *c) {
    close(c->fd);
    free(c->left);
    munmap(c->in, IN_SIZE);
    free(c);
    if (!--client_count) drop_old_logs();
}

/* Keeps what the socket did not take, and reads nothing more before it has. */
static void keep_rest(struct connection *c, struct iovec *rest, int count) {
    for (int i = 0; i < count; i++) c->left_size += rest[i].iov_len;
    uint8_t *to = c->left = malloc(c->left_size);
    if (!to) die("out of memory");
    for (int i = 0; i < count; i++) to = mempcpy(to, rest[i].iov_base, rest[i].iov_len);
    watch(c, EPOLL_CTL_MOD, EPOLLOUT);
}

static void send_answers(struct connection *c) {
    struct iovec *part = parts;
    end_part();
    while (part < parts + part_count) {
        int left = parts + part_count - part;
        ssize_t sent = writev(c->fd, part, left < WRITEV_MAX ? left : WRITEV_MAX);
        if (sent < 0) {
            if (errno == EAGAIN) keep_rest(c, part, left);
            return; /* of a client that has gone the next read tells */
        }
        for (; sent && (size_t)sent >= part->iov_len; part++) sent -= part->iov_len;
        if (!sent) continue;
        part->iov_base = (uint8_t *)part->iov_base + sent;
        part->iov_len -= sent;
    }
}

static void send_rest(struct connection *c) {
    ssize_t sent = send(c->fd, c->left + c->left_sent, c->left_size - c->left_sent, MSG_NOSIGNAL);
    if (sent > 0) c->left_sent += sent;
    if (sent < 0 && errno != EAGAIN) c->left_sent = c->left_size;
    if (c->left_sent < c->left_size) return;
    free(c->left);
    c->left = NULL;
    c->left_size = c->left_sent = 0;
    watch(c, EPOLL_CTL_MOD, EPOLLIN);
}

static void receive(struct connection *c) {
    ssize_t got = recv(c->fd, c->in + c->in_size, IN_SIZE - c->in_size, 0);
    if (got <= 0 && !(got < 0 && errno == EAGAIN)) return leave(c);
    if (got < 0) return;
    c->in_size += got;
    size_t at = 0;
    out_size = out_taken = part_count = 0;
    while (c->in_size - at >= 8) {
        size_t size = 4 + (size_t)read_u32(c->in + at);
        if (size < 8 || size > IN_SIZE) die("a frame has an impossible size");
        if (c->in_size - at < size) break;
        answer(c, c->in + at, size);
        at += size;
    }
    memmove(c->in, c->in + at, c->in_size - at);
    c->in_size -= at;
    send_answers(c);
}

static void accept_client(void) {
    struct sockaddr_in peer;
    socklen_t size = sizeof peer;
    int on = 1, fd = accept4(listener, (struct sockaddr *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct connection *c = calloc(1, sizeof *c);
    if (!c) die("out of memory");
    c->fd = fd;
    memcpy(c->host, &peer.sin_addr, 4);
    write_u32(c->host + 4, ntohs(peer.sin_port));
    c->in = mmap(NULL, IN_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (c->in == MAP_FAILED) die("out of memory");
    client_count++;
    watch(c, EPOLL_CTL_ADD, EPOLLIN);
}

static int64_t wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME_COARSE, &t);
    return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

static void serve(void) {
    for (;;) {
        struct epoll_event events[EVENTS_MAX];
        int count = epoll_wait(epoll_fd, events, EVENTS_MAX, -1);
        now_ms = wall_ms();
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c)
                accept_client();
            else if (c->left)
                send_rest(c);
            else
                receive(c);
        }
    }
}

static int listen_on_loopback(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1024)) die("listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    memcpy(own_host, &address.sin_addr, 4);
    write_u32(own_host + 4, ntohs(address.sin_port));
    return ntohs(address.sin_port);
}

int main(int count, char **words) {
    if (count != 2) {
        fputs("use: bare FOLDER\n", stderr);
        return 2;
    }
    folder = words[1];
    signal(SIGPIPE, SIG_IGN);
    make_crc_table();
    began_ms = now_ms = wall_ms();
    logs[0] = map_file("log", 0, LOG_SIZE, 0);
    for (int i = 0; i < QUEUES; i++) queues[i] = map_file("queue", i, QUEUE_SIZE, 1);
    index_map = map_file("index", 0, INDEX_HEADER + 4ull * INDEX_SLOTS + 20ull * INDEX_ENTRIES, 1);
    int port = listen_on_loopback();
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event);
    printf("ready broker=127.0.0.1:%d\n", port);
    fflush(stdout);
    serve();
}
