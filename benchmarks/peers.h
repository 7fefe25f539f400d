/* The text protocols of other systems, for loadgen.c: Redis Streams and NATS JetStream.
 *
 * In: a buffer to fill, or what has arrived. Out: the size of a request, or of one whole answer.
 * The NATS stream is S with subject bench.s and consumer C; the Redis stream is s.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INBOX "_INBOX.abcd0000" /* its four digits become the connection's number */

static size_t end_with_body(char *text, size_t size, int body_size) {
    memset(text + size, 'x', body_size);
    memcpy(text + size + body_size, "\r\n", 2);
    return size + body_size + 2;
}

static size_t redis_ping(char *text) { return sprintf(text, "*1\r\n$4\r\nPING\r\n"); }

static size_t redis_add(char *text, int body_size) {
    int size = sprintf(text,
                       "*8\r\n$4\r\nXADD\r\n$1\r\ns\r\n$6\r\nMAXLEN\r\n$1\r\n~\r\n"
                       "$6\r\n500000\r\n$1\r\n*\r\n$1\r\nb\r\n$%d\r\n",
                       body_size);
    return end_with_body(text, size, body_size);
}

static size_t nats_publish(char *text, int body_size) {
    int size = sprintf(text, "PUB bench.s " INBOX ".1 %d\r\n", body_size);
    return end_with_body(text, size, body_size);
}

static size_t nats_next(char *text) {
    static const char wish[] = "{\"batch\":32,\"no_wait\":true}";
    return sprintf(text, "PUB $JS.API.CONSUMER.MSG.NEXT.S.C " INBOX ".1 %zu\r\n%s\r\n",
                   strlen(wish), wish);
}

/* Opens a NATS connection and subscribes it to the inbox of its number. */
static size_t nats_greeting(char *text, int number) {
    return sprintf(text,
                   "CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"c\","
                   "\"version\":\"1\",\"protocol\":1,\"headers\":true,"
                   "\"no_responders\":true}\r\nSUB _INBOX.abcd%04d.* 1\r\n",
                   number % 10000);
}

/* Writes the connection's number into the inbox of a request. */
static void nats_set_inbox(uint8_t *request, int number) {
    char digits[8];
    uint8_t *inbox = memmem(request, 100, INBOX, strlen(INBOX));
    snprintf(digits, sizeof digits, "%04d", number % 10000);
    if (inbox) memcpy(inbox + strlen(INBOX) - 4, digits, 4);
}

static void refuse(const uint8_t *text, size_t size) {
    fprintf(stderr, "bad response: %.*s\n", (int)(size < 2000 ? size : 2000), text);
    exit(1);
}

/* The size of the first whole answer of Redis in `text`, or 0 while it is not whole. */
static size_t redis_answer(const uint8_t *text, size_t left) {
    const uint8_t *end = memchr(text, '\n', left);
    if (!end) return 0;
    size_t size = end - text + 1;
    if (*text == '-') refuse(text, size);
    if (*text == '$') size += atoi((const char *)text + 1) + 2;
    return size <= left ? size : 0;
}

/* The same for NATS; `*is_message` says whether it is a message, not talk between the two sides. */
static size_t nats_answer(const uint8_t *text, size_t left, int *is_message) {
    const uint8_t *end = memchr(text, '\n', left);
    *is_message = 0;
    if (!end) return 0;
    size_t size = end - text + 1;
    if (*text == '-' || (size > 4 && !memcmp(text, "HMSG", 4))) refuse(text, size);
    if (size < 4 || memcmp(text, "MSG ", 4)) return size;
    const uint8_t *length = end;
    while (*length != ' ') length--;
    size_t payload = atoi((const char *)length);
    if (left < size + payload + 2) return 0;
    if (memmem(text + size, payload, "\"error\"", 7)) refuse(text + size, payload);
    *is_message = 1;
    return size + payload + 2;
}
