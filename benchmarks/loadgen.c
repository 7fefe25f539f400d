/* Load generator: keeps requests in flight on loopback and measures what they cost the server.
 *
 * Build: gcc -O2 -o loadgen loadgen.c
 * Use:   loadgen PORT[,PORT] MODE CONNECTIONS WINDOW SECONDS BODY_BYTES BATCH SERVER_PID[,PID]
 *                [MAX_OFFSET [RATE [TOPIC [WARM_UP [TOPICS [QUEUES]]]]]]
 *
 * MODE   send      code 310 to TOPIC (BenchmarkTest without), QUEUES queues (4) in turn
 *        batch     code 320 with BATCH messages each
 *        pull      code 11 of group benchmark_consumer, 32 messages from offset 0 up to MAX_OFFSET,
 *                  queues 0 to 3; a broker that checks groups must know the group
 *        echo      as send, but any frame counts as an answer
 *        delay     as send, with delay level 2
 *        sql       as pull, by what group benchmark_sql has subscribed to with a heartbeat
 *        xadd ping (Redis) and nats natspull (JetStream), for comparison with other systems
 * WINDOW is the number of requests in flight on each connection. With RATE (requests a second over
 * all connections) the load is open: latency counts from the moment a request was due.
 *
 * With TOPICS each send goes to one of so many topics and of their queues, chosen at random; the last
 * five characters of TOPIC become the number of the topic.
 *
 * After WARM_UP seconds (0.7) and the first answer it measures for SECONDS, or on a starved machine
 * until one more answer has come, and prints one line: requests and messages a second, CPU of the
 * server processes per request and message, its own CPU, latencies.
 *
 * Rules: an answer counts only if its code is 0 and, for a pull, if its body holds whole records,
 * which are counted. A wrong answer or a closed connection ends the run with exit code 1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "meter.h"
#include "numbers.h"
#include "peers.h"

#define TOPIC_DIGITS 5
#define SILENCE_MAX_NS 5000000000ull
#define PULL_COUNT 32 /* also what NATS is asked for */
#define EVENTS_MAX 256
#define LIST_MAX 8
#define FRAME_MAX ((size_t)8 << 20)
#define PROPERTIES                                                                                 \
    "UNIQ_KEY\\u00017F00000100002A139A550001E2400001\\u0002"                                       \
    "WAIT\\u0001true\\u0002TAGS\\u0001TagA\\u0002"
#define RECORD_MIN 88
#define RECORD_V1 0xDAA320A7u
#define RECORD_V2 0xDAA320ABu

enum mode { SEND, BATCH, PULL, ECHO, DELAY, SQL, XADD, NATS, NATSPULL, PING, MODES };
static const char *const MODE_NAMES[MODES] = {"send", "batch", "pull", "echo",     "delay",
                                              "sql",  "xadd",  "nats", "natspull", "ping"};

struct connection {
    int fd;
    int number;
    int is_blocked; /* waits until the socket takes more */
    uint8_t *out;
    size_t out_size, out_sent, out_capacity;
    uint8_t *in;
    size_t in_size, in_capacity;
    uint64_t *due_ns; /* ring: when the requests in flight were due */
    uint32_t asked, answered;
    int queue_id;
    int64_t offset; /* of the next pull; for natspull, messages received */
};

/* What the arguments ask for. */
static enum mode mode;
static int connection_count, window, body_size, batch_count;
static double seconds, rate, warm_up = 0.7;
static uint64_t topic_count = 1, queue_count = 4;
static int64_t max_offset = 1000;
static char topic[64] = "BenchmarkTest";
static int ports[LIST_MAX], port_count, pids[LIST_MAX], pid_count;

/* The request, made once, and the places in it that change with every copy. */
static uint8_t *request;
static size_t request_size, opaque_at, key_at, queue_at, born_at, topic_at;
static uint32_t opaque = 1000000000;
static uint64_t keys_made, queue_turn;

static struct connection *connections;
static int epoll_fd;

/* What was measured. `answers` begins anew after the warm-up, the other two do not. */
static uint64_t answers, answers_in_all, messages_pulled;

static int is_pull(void) { return mode == PULL || mode == SQL; }

static void die(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(1);
}

static void *allocate(size_t size) {
    void *memory = calloc(1, size);
    if (!memory) die("out of memory");
    return memory;
}

/* ---- requests -------------------------------------------------------------------------------- */

static size_t find(const char *text) {
    uint8_t *found = memmem(request, request_size, text, strlen(text));
    if (!found) die("the request lacks a field");
    return found - request + strlen(text);
}

/* Makes a frame with a JSON header in `frame` and gives its size. */
static size_t write_frame(uint8_t *frame, int code, const char *fields, uint32_t id,
                          const uint8_t *body, size_t size) {
    char header[4096];
    size_t n = snprintf(header, sizeof header,
                        "{\"code\":%d,\"extFields\":{%s},\"flag\":0,\"language\":\"JAVA\","
                        "\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":431}",
                        code, fields, id);
    if (n >= sizeof header || 8 + n + size > FRAME_MAX) die("the request is too long");
    write_u32(frame, 4 + n + size);
    write_u32(frame + 4, n);
    memcpy(frame + 8, header, n);
    if (size) memcpy(frame + 8 + n, body, size);
    return 8 + n + size;
}

/* Fills the request with a send of code 310 or 320. */
static void make_send(int code, const char *properties, const uint8_t *body, size_t size) {
    char fields[1024];
    snprintf(fields, sizeof fields,
             "\"a\":\"benchmark_producer\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"4\",\"e\":\"0\","
             "\"f\":\"0\",\"g\":\"1700000000000\",\"h\":\"0\",\"i\":\"%s\",\"j\":\"0\","
             "\"k\":\"false\",\"l\":\"0\",\"m\":\"%s\",\"n\":\"broker-a\"",
             topic, properties, code == 320 ? "true" : "false");
    request_size = write_frame(request, code, fields, opaque, body, size);
    opaque_at = find("\"opaque\":");
    queue_at = find("\"e\":\"");
    born_at = find("\"g\":\"");
    topic_at = find("\"b\":\"") + strlen(topic) - TOPIC_DIGITS;
}

/* Fills `body` with the inner messages of a batch and gives its size. */
static size_t write_batch(uint8_t *body) {
    size_t n = 0;
    for (int i = 0; i < batch_count; i++) {
        char properties[200];
        size_t length = sprintf(properties,
                                "UNIQ_KEY\x01"
                                "7F00000100002A139A550001E240%04X\x02WAIT\x01"
                                "true\x02TAGS\x01TagA\x02",
                                i & 0xFFFF);
        size_t size = 22 + body_size + length;
        if (n + size > FRAME_MAX) die("the batch is too long");
        write_u32(body + n, size);
        write_u32(body + n + 16, body_size);
        memset(body + n + 20, 'x', body_size);
        write_u16(body + n + 20 + body_size, length);
        memcpy(body + n + 22 + body_size, properties, length);
        n += size;
    }
    return n;
}

static void make_request(void) {
    char *text = (char *)(request = allocate(FRAME_MAX));
    uint8_t *body = allocate(FRAME_MAX);
    switch (mode) {
    case SEND:
    case ECHO:
    case DELAY:
        memset(body, 'x', body_size);
        make_send(310, mode == DELAY ? PROPERTIES "DELAY\\u00012\\u0002" : PROPERTIES, body,
                  body_size);
        key_at = find("UNIQ_KEY\\u0001") + 20;
        break;
    case BATCH:
        make_send(320, "WAIT\\u0001true\\u0002", body, write_batch(body));
        break;
    case XADD:
        request_size = redis_add(text, body_size);
        break;
    case PING:
        request_size = redis_ping(text);
        break;
    case NATS:
        request_size = nats_publish(text, body_size);
        break;
    case NATSPULL:
        request_size = nats_next(text);
        break;
    default: /* a pull is made anew each time, for its offset has no fixed length */
        request_size = 1024;
    }
    free(body);
}

static size_t write_pull(uint8_t *frame, struct connection *c) {
    char fields[512];
    int is_sql = mode == SQL;
    snprintf(fields, sizeof fields,
             "\"consumerGroup\":\"%s\",\"topic\":\"%s\",\"queueId\":\"%d\","
             "\"queueOffset\":\"%ld\",\"maxMsgNums\":\"%d\",\"sysFlag\":\"%d\","
             "\"commitOffset\":\"0\",\"suspendTimeoutMillis\":\"15000\",%s"
             "\"subVersion\":\"1700000000000\",\"expressionType\":\"%s\"",
             is_sql ? "benchmark_sql" : "benchmark_consumer", topic, c->queue_id, (long)c->offset,
             PULL_COUNT, is_sql ? 2 : 6, is_sql ? "" : "\"subscription\":\"*\",",
             is_sql ? "SQL92" : "TAG");
    c->offset += PULL_COUNT;
    if (c->offset + PULL_COUNT > max_offset) c->offset = 0;
    return write_frame(frame, 11, fields, ++opaque, NULL, 0);
}

/* Sends a copied request to a topic and queue chosen at random (xorshift). */
static void scatter(uint8_t *copy) {
    static uint64_t state = 88172645463325252ull;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    write_digits(copy + topic_at, TOPIC_DIGITS, (state >> 8) % topic_count);
    copy[queue_at] = '0' + (state >> 40) % queue_count;
}

/* Gives a copied request its own opaque, born time, key, queue or inbox. */
static void personalise(uint8_t *copy, struct connection *c) {
    if (mode == NATS || mode == NATSPULL) nats_set_inbox(copy, c->number);
    if (mode >= XADD) return;
    write_digits(copy + opaque_at, 10, ++opaque);
    write_digits(copy + born_at, 13, wall_ms());
    copy[queue_at] = '0' + queue_turn++ % queue_count;
    if (topic_count > 1) scatter(copy);
    if (mode == BATCH) return;
    uint64_t key = ++keys_made;
    for (int i = 11; i >= 0; i--, key >>= 4) copy[key_at + i] = "0123456789ABCDEF"[key & 15];
}

static void ask(struct connection *c, uint64_t due_ns) {
    if (c->out_size + request_size > c->out_capacity) {
        c->out_capacity = (c->out_size + request_size) * 2;
        c->out = realloc(c->out, c->out_capacity);
        if (!c->out) die("out of memory");
    }
    uint8_t *copy = c->out + c->out_size;
    if (is_pull()) {
        c->out_size += write_pull(copy, c);
    } else {
        memcpy(copy, request, request_size);
        personalise(copy, c);
        c->out_size += request_size;
    }
    c->due_ns[c->asked++ % (window + 1)] = due_ns;
}

/* ---- connections ----------------------------------------------------------------------------- */

static void watch(struct connection *c, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    epoll_ctl(epoll_fd, operation, c->fd, &event);
}

static void flush(struct connection *c) {
    while (c->out_sent < c->out_size) {
        ssize_t sent = send(c->fd, c->out + c->out_sent, c->out_size - c->out_sent, MSG_NOSIGNAL);
        if (sent <= 0) {
            if (!c->is_blocked) watch(c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
            c->is_blocked = 1;
            return;
        }
        c->out_sent += sent;
    }
    c->out_sent = c->out_size = 0;
    if (c->is_blocked) watch(c, EPOLL_CTL_MOD, EPOLLIN);
    c->is_blocked = 0;
}

static void greet_nats(struct connection *c) {
    char text[4096];
    if (recv(c->fd, text, sizeof text, 0) <= 0) die("no greeting from NATS");
    ssize_t size = nats_greeting(text, c->number);
    if (send(c->fd, text, size, MSG_NOSIGNAL) != size) die("NATS does not take the greeting");
}

static void open_connection(struct connection *c, int number) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(ports[number % port_count]),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    c->number = number;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) {
        perror("connect");
        exit(1);
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (mode == NATS || mode == NATSPULL) greet_nats(c);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->in = allocate(c->in_capacity = 1 << 20);
    c->out = allocate(c->out_capacity = 1 << 16);
    c->due_ns = allocate((window + 2) * sizeof *c->due_ns);
    c->queue_id = number % queue_count;
    watch(c, EPOLL_CTL_ADD, EPOLLIN);
}

/* ---- answers --------------------------------------------------------------------------------- */

static int count_records(const uint8_t *at, const uint8_t *end) {
    int count = 0;
    for (; at < end; count++) {
        if (end - at < RECORD_MIN) return 0;
        uint32_t size = read_u32(at), magic = read_u32(at + 4);
        if (size < RECORD_MIN || size > (size_t)(end - at)) return 0;
        if (magic != RECORD_V1 && magic != RECORD_V2) return 0;
        at += size;
    }
    return count;
}

/* Whether the answer `frame`, whose length field says `length`, is a success. */
static int is_good(const uint8_t *frame, uint32_t length) {
    if (length < 4) return 0;
    uint32_t header_size = read_u32(frame + 4) & 0xffffff;
    if (header_size > length - 4) return 0;
    const uint8_t *code = memmem(frame + 8, header_size, "\"code\":", 7);
    if (!code) return 0;
    for (code += 7; *code == ' ';) code++;
    if (code[0] != '0' || (code[1] != ',' && code[1] != '}')) return 0;
    if (!is_pull()) return 1;
    int count = count_records(frame + 8 + header_size, frame + 4 + length);
    messages_pulled += count;
    return count > 0;
}

/* The size of the first whole remoting frame in `at`, or 0 while it is not whole. */
static size_t take_frame(struct connection *c, size_t at) {
    if (c->in_size - at < 4) return 0;
    uint32_t length = read_u32(c->in + at);
    size_t size = 4 + (size_t)length;
    if (size > c->in_capacity) {
        c->in = realloc(c->in, c->in_capacity = size * 2);
        if (!c->in) die("out of memory");
    }
    if (c->in_size - at < size) return 0;
    if (mode != ECHO && !is_good(c->in + at, length))
        refuse(c->in + at + 8, length < 4 ? 0 : length - 4);
    return size;
}

/* The size of the first whole answer from `at` on; `*counts`: whether it completes a request. */
static size_t take_answer(struct connection *c, size_t at, int *counts) {
    *counts = 1;
    if (mode < XADD) return take_frame(c, at);
    if (mode == XADD || mode == PING) return redis_answer(c->in + at, c->in_size - at);
    size_t size = nats_answer(c->in + at, c->in_size - at, counts);
    if (mode == NATSPULL && *counts) *counts = ++c->offset % PULL_COUNT == 0;
    if (size >= 4 && !memcmp(c->in + at, "PING", 4) && c->out_size + 6 < c->out_capacity) {
        memcpy(c->out + c->out_size, "PONG\r\n", 6);
        c->out_size += 6;
    }
    return size;
}

/* Takes all whole answers that have arrived and gives their number. */
static int take_answers(struct connection *c) {
    uint64_t now = now_ns();
    size_t at = 0, size;
    int count = 0, counts;
    while ((size = take_answer(c, at, &counts))) {
        at += size;
        if (!counts) continue;
        note_latency(now - c->due_ns[c->answered++ % (window + 1)]);
        count++;
    }
    memmove(c->in, c->in + at, c->in_size - at);
    c->in_size -= at;
    answers += count;
    answers_in_all += count;
    return count;
}

static void receive(struct connection *c) {
    for (;;) {
        size_t room = c->in_capacity - c->in_size;
        ssize_t got = recv(c->fd, c->in + c->in_size, room, 0);
        if (got == 0) die("closed");
        if (got < 0 && errno != EAGAIN) die("connection lost");
        if (got < 0) return;
        c->in_size += got;
        int count = take_answers(c);
        uint64_t now = now_ns();
        for (int i = 0; i < count && !rate; i++) ask(c, now);
        if ((size_t)got < room) return;
    }
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Open load: asks everything that is due, on the next connection with room in its window. */
static void ask_what_is_due(double *next_ns, uint64_t now) {
    static unsigned turn;
    while (*next_ns <= now) {
        struct connection *free_one = NULL;
        for (int i = 0; i < connection_count && !free_one; i++) {
            struct connection *c = connections + turn++ % connection_count;
            if (c->asked - c->answered < (uint32_t)window) free_one = c;
        }
        if (!free_one) return;
        ask(free_one, *next_ns);
        if (!free_one->is_blocked) flush(free_one);
        *next_ns += 1e9 / rate;
    }
}

/* Waits for events: 200 ms at most, or with a rate until shortly before the next request is due. */
static int await_events(struct epoll_event *events, double next_ns) {
    if (!rate) return epoll_wait(epoll_fd, events, EVENTS_MAX, 200);
    double left_ns = next_ns - now_ns();
    if (left_ns <= 60000) return epoll_wait(epoll_fd, events, EVENTS_MAX, 0);
    struct timespec wait = {0, left_ns > 1e6 ? 1000000 : (long)left_ns - 50000};
    return epoll_pwait2(epoll_fd, events, EVENTS_MAX, &wait, NULL);
}

static double messages_per_answer(void) {
    if (mode == BATCH) return batch_count;
    if (is_pull()) return (double)messages_pulled / (answers_in_all ? answers_in_all : 1);
    return mode == NATSPULL ? PULL_COUNT : 1;
}

static void print_line(double elapsed, double server_cpu, double own_cpu) {
    double per = messages_per_answer();
    char batch[32] = "";
    if (mode == BATCH) snprintf(batch, sizeof batch, " k=%d", batch_count);
    printf("%-5s c=%-3d w=%-4d body=%d%s req/s %8.0f msg/s %9.0f  srvCPU/req %6.2fus /msg %6.3fus "
           "(srv %3.0f%%) lgCPU/req %5.2fus  lat us p50 %.0f p99 %.0f p99.9 %.0f max %.0f\n",
           MODE_NAMES[mode], connection_count, window, body_size, batch, answers / elapsed,
           answers * per / elapsed, server_cpu / answers * 1e6, server_cpu / answers / per * 1e6,
           server_cpu / elapsed * 100, own_cpu / answers * 1e6, latency_us(.5, answers),
           latency_us(.99, answers), latency_us(.999, answers), latency_us(.999999, answers));
}

static void run(void) {
    uint64_t start = now_ns(), warm = start + (uint64_t)(warm_up * 1e9);
    uint64_t length = seconds * 1e9, given_up = warm + length + SILENCE_MAX_NS, measured_from = 0;
    double next_ns = start, server_cpu = 0, own_cpu = 0;
    for (int i = 0; i < connection_count && !rate; i++) {
        for (int k = 0; k < window; k++) ask(connections + i, now_ns());
        flush(connections + i);
    }
    for (uint64_t now = start; !measured_from || now < measured_from + length || !answers;
         now = now_ns()) {
        struct epoll_event events[EVENTS_MAX];
        if (!answers && now >= given_up) die("no answer came");
        if (!measured_from && now >= warm && answers) {
            measured_from = now;
            answers = 0;
            memset(histogram, 0, sizeof histogram);
            server_cpu = cpu_s(pids, pid_count);
            own_cpu = own_cpu_s();
        }
        if (rate) ask_what_is_due(&next_ns, now);
        int count = await_events(events, next_ns);
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) flush(c);
            if (events[i].events & ~EPOLLOUT) receive(c);
            if (!rate || c->out_size) flush(c);
        }
    }
    double elapsed = (now_ns() - measured_from) / 1e9;
    print_line(elapsed, cpu_s(pids, pid_count) - server_cpu, own_cpu_s() - own_cpu);
}

static int read_list(char *text, int *numbers) {
    int count = 0;
    for (char *word = strtok(text, ","); word && count < LIST_MAX; word = strtok(NULL, ","))
        numbers[count++] = atoi(word);
    return count;
}

static void read_arguments(int count, char **words) {
    if (count < 9) die("use: see the head of loadgen.c");
    port_count = read_list(words[1], ports);
    for (mode = SEND; mode < MODES && strcmp(words[2], MODE_NAMES[mode]);) mode++;
    connection_count = atoi(words[3]);
    window = atoi(words[4]);
    seconds = atof(words[5]);
    body_size = atoi(words[6]);
    batch_count = atoi(words[7]);
    pid_count = read_list(words[8], pids);
    if (count > 9 && atoll(words[9])) max_offset = atoll(words[9]);
    if (count > 10) rate = atof(words[10]);
    if (count > 11) snprintf(topic, sizeof topic, "%s", words[11]);
    if (count > 12) warm_up = atof(words[12]);
    if (count > 13) topic_count = atoll(words[13]);
    if (count > 14) queue_count = atoll(words[14]);
    if (topic_count < 1 || queue_count < 1 || queue_count > 10) die("TOPICS, QUEUES: 1 or more");
    if (strlen(topic) < TOPIC_DIGITS) die("TOPIC is too short");
    if (mode == MODES) die("MODE: see the head of loadgen.c");
    if (port_count < 1 || connection_count < 1 || window < 1 || seconds <= 0)
        die("PORT, CONNECTIONS, WINDOW and SECONDS must be more than 0");
    if (body_size < 0 || (size_t)body_size > FRAME_MAX - 4096) die("BODY_BYTES: 0 to 8384512");
}

int main(int count, char **words) {
    read_arguments(count, words);
    make_request();
    epoll_fd = epoll_create1(0);
    connections = allocate(connection_count * sizeof *connections);
    for (int i = 0; i < connection_count; i++) open_connection(connections + i, i);
    run();
    return 0;
}
