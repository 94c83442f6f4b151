/* A server that does almost nothing: the generator's figures against it are the highest that it can measure.
 *
 * It knows three kinds of Topic Filters: "#", which gets the --retained messages, names, and "name/#". It forwards each
 * PUBLISH to the other matching subscriptions, with their QoS, and checks nothing. PUBACKs are ignored.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connection.h"
#include "figures.h"
#include "options.h"
#include "packets.h"
#include "scenarios.h"

#define MOST_SUBSCRIPTIONS 4096
#define MOST_CHANGED 16384
#define MOST_FILTER 64
#define MOST_CANNED 262144

typedef struct {
    connection *c;
    char filter[MOST_FILTER];
    size_t length;
} subscription;

static subscription subscriptions[MOST_SUBSCRIPTIONS];
static int subscription_count;
static uint8_t *canned[2][2]; /* the retained messages, by version (3.1.1, 5.0) and QoS */
static size_t canned_size[2][2];
static connection *changed[MOST_CHANGED]; /* connections that got output in this turn */
static int changed_count;
static connection *replaying[MOST_SUBSCRIPTIONS];
static int replaying_count;

static void make_canned(int version, int qos, long count) {
    uint8_t *at = canned[version == 5][qos] = malloc((size_t)count * (NUMBERED_TOPIC + NUMBERED_PAYLOAD + 16) + 1);
    if (!at) fail("out of memory");
    char topic[NUMBERED_TOPIC], payload[NUMBERED_PAYLOAD];
    for (long i = 0; i < count; i++) {
        write_numbered_topic(topic, i);
        write_numbered_payload(payload, NUMBERED_PAYLOAD, i);
        at += write_publish(at, version, topic, NUMBERED_TOPIC, payload, NUMBERED_PAYLOAD, qos, 1,
                            (uint16_t)(i % 65535 + 1));
    }
    canned_size[version == 5][qos] = (size_t)(at - canned[version == 5][qos]);
}

static bool matches(const subscription *s, const publication *message) {
    if (s->filter[s->length - 1] != '#')
        return s->length == message->topic_length && !memcmp(s->filter, message->topic, s->length);
    return message->topic_length >= s->length - 1 && !memcmp(s->filter, message->topic, s->length - 1);
}

/* Call this before output is put: the connection sends it at the end of the turn. */
static void note_change(connection *c) {
    if (unsent(c)) return;
    if (changed_count == MOST_CHANGED) fail("too many connections with output");
    changed[changed_count++] = c;
}

static void forward(connection *from, const publication *message) {
    for (int i = 0; i < subscription_count; i++) {
        subscription *s = &subscriptions[i];
        if (s->c->closed || s->c == from || s->length == 1 || !matches(s, message)) continue;
        note_change(s->c);
        put_publish(s->c, message->topic, message->topic_length, message->payload, message->payload_length, s->c->qos, 0);
    }
}

static void send_canned(connection *c) {
    while (c->canned_left && !unsent(c) && !c->closed) {
        size_t size = c->canned_left < MOST_CANNED ? c->canned_left : MOST_CANNED;
        ssize_t sent = send(c->fd, c->canned, size, MSG_NOSIGNAL);
        if (sent <= 0) break;
        c->canned = (const uint8_t *)c->canned + sent;
        c->canned_left -= (size_t)sent;
    }
    if (c->canned_left) watch_writes(c, true);
}

static void handle_client(connection *c, uint8_t header, const uint8_t *body, uint32_t length) {
    if ((header & KIND) != PUBACK) note_change(c);
    switch (header & KIND) {
    case CONNECT: {
        c->version = body[6];
        bool five = c->version == 5;
        uint8_t connack[] = {CONNACK, (uint8_t)(2 + five), 0, 0, 0};
        put(c, connack, (size_t)(4 + five));
        break;
    }
    case SUBSCRIBE: {
        if (subscription_count == MOST_SUBSCRIPTIONS) fail("too many subscriptions");
        bool five = c->version == 5;
        subscription *s = &subscriptions[subscription_count++];
        s->c = c;
        s->length = length - 5 - five;
        if (s->length > MOST_FILTER) fail("the filter is too long");
        memcpy(s->filter, body + 4 + five, s->length);
        c->qos = body[length - 1] ? 1 : 0;
        uint8_t suback[] = {SUBACK, (uint8_t)(3 + five), body[0], body[1], (uint8_t)(five ? 0 : c->qos), (uint8_t)c->qos};
        put(c, suback, (size_t)(5 + five));
        if (s->length == 1) {
            c->canned = canned[five][c->qos];
            c->canned_left = canned_size[five][c->qos];
            replaying[replaying_count++] = c;
        }
        break;
    }
    case PUBLISH: {
        publication message = read_publish(c, header, body, length);
        if (message.packet_id) put_puback(c, message.packet_id);
        forward(c, &message);
        break;
    }
    case PINGREQ: put(c, (uint8_t[]){PINGRESP, 0}, 2); break;
    case DISCONNECT: c->closed = true; break;
    default: break;
    }
}

static void forget(connection *c) {
    for (int i = 0; i < subscription_count; i++)
        if (subscriptions[i].c == c) subscriptions[i--] = subscriptions[--subscription_count];
    for (int i = 0; i < replaying_count; i++)
        if (replaying[i] == c) replaying[i--] = replaying[--replaying_count];
    close(c->fd);
}

static void accept_clients(connection *listener) {
    for (int fd; (fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        connection *c = new_connection(fd, handle_client, 1 << 16);
        c->lost = forget;
        watch(fd, c);
    }
}

static void listen_to(uint16_t port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(fd, (void *)&address, sizeof address) || listen(fd, 4096)) fail("port %d: %s", port, strerror(errno));
    connection *listener = new_connection(fd, NULL, 1);
    listener->readable = accept_clients;
    watch(fd, listener);
}

void run_null_broker(void) {
    long count = number_option("retained", 0);
    for (int version = 4; version <= 5; version++)
        for (int qos = 0; qos <= 1; qos++) make_canned(version, qos, count);
    listen_to((uint16_t)number_option("port", 1883));
    while (now_ns() < deadline()) {
        serve(100 * MILLISECOND);
        while (changed_count) flush(changed[--changed_count]);
        for (int i = 0; i < replaying_count; i++) send_canned(replaying[i]);
    }
}
