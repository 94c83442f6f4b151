/* Live messages from publishers to subscribers.
 *
 * How it works
 *
 * Publishers take turns, one message each, as long as fewer than --inflight messages are on their way. A round ends when
 * the window is full or after 512 messages; then each publisher sends what it has, and the loop serves the sockets. So
 * the generator publishes as many messages at a time as the broker has delivered since the last round, and one alone if
 * the broker delivers one alone.
 *
 * A PUBLISH is a copy of a ready packet. Only its Packet Identifier and the first bytes of its payload are written:
 *
 *     bytes 0-7    the time of publishing, in nanoseconds
 *     bytes 8-9    the publisher
 *     bytes 10-13  the publisher's sequence number
 *
 * Each subscriber expects the sequence numbers of each publisher in ascending order. A lower one is out of order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "figures.h"
#include "options.h"
#include "packets.h"
#include "scenarios.h"

#define MOST_TOPIC 64
#define STAMP 14 /* bytes of the payload that are written for each message */
#define ROUND 512
#define MOST_UNSENT 65536
#define SAMPLED 16 /* the wait of every 16th message is a sample; with one message on its way, that of each one */

typedef struct {
    connection *c;
    uint8_t *packets; /* one for each topic, each of `size` bytes */
    size_t size, packet_id_at, payload_at;
    uint32_t sequence;
} publisher;

static long publisher_count, subscriber_count, inflight, topics, retain_every, payload_size;
static int qos;
static bool separate;
static uint64_t most; /* messages to publish */
static publisher *publishers;
static connection **subscribers;
static uint64_t sent, delivered, acknowledged, disordered, duplicates, started, sampled;
static uint32_t *expected; /* the next sequence number, by subscriber and publisher */
static samples waits;

static void handle_delivery(connection *c, uint8_t header, const uint8_t *body, uint32_t length) {
    if ((header & KIND) != PUBLISH) fail("a subscriber got a packet 0x%02x", header);
    publication message = read_publish(c, header, body, length);
    if (message.packet_id) put_puback(c, message.packet_id);
    if (header & RETAIN) return; /* retained by an earlier run */
    if (message.payload_length != (uint32_t)payload_size) fail("a message has %u bytes", message.payload_length);
    uint64_t published;
    uint16_t from;
    uint32_t sequence;
    memcpy(&published, message.payload, 8);
    memcpy(&from, message.payload + 8, 2);
    memcpy(&sequence, message.payload + 10, 4);
    if (from >= publisher_count || published < started) fail("a message that was not published");
    uint32_t *next = expected + c->number * publisher_count + from;
    if (sequence < *next) disordered++;
    else *next = sequence + 1;
    if (header & DUP) duplicates++;
    c->messages++;
    if (++delivered % sampled == 0) add_sample(&waits, now_ns() - published);
}

static void handle_puback(connection *c, uint8_t header, const uint8_t *body, uint32_t length) {
    if ((header & KIND) != PUBACK) fail("a publisher got a packet 0x%02x", header);
    note_puback(c, body, length);
    acknowledged++;
}

static int version_of(long number) { return number_option("mixed", 0) ? (number % 2 ? 5 : 4) : protocol(); }

/* Make the ready packets of a publisher. */
static void prepare(publisher *p, int number) {
    char payload[payload_size];
    memset(payload, 'x', (size_t)payload_size);
    uint16_t from = (uint16_t)number;
    memcpy(payload + 8, &from, 2);
    p->packets = malloc((size_t)topics * (MOST_TOPIC + (size_t)payload_size + 16));
    if (!p->packets) fail("out of memory");
    for (long topic = 0; topic < topics; topic++) {
        char name[MOST_TOPIC];
        /* The topics of a publisher are equally long, so its packets are too. */
        int length = topics == 1 ? snprintf(name, sizeof name, "live/%d/temperature/reading", number)
                                 : snprintf(name, sizeof name, "live/%d/%06ld/temperature/reading", number, topic);
        p->size = write_publish(p->packets + (size_t)topic * p->size, p->c->version, name, (size_t)length, payload,
                                (size_t)payload_size, qos, 0, 0);
        p->payload_at = p->size - (size_t)payload_size;
        p->packet_id_at = p->payload_at - (p->c->version == 5) - 2;
    }
}

static void publish(publisher *p, uint64_t now, bool retain) {
    uint8_t *at = reserve_output(p->c, p->size);
    memcpy(at, p->packets + p->sequence % topics * p->size, p->size);
    if (retain) *at |= RETAIN;
    if (qos) {
        uint16_t packet_id = next_packet_id(p->c);
        at[p->packet_id_at] = (uint8_t)(packet_id >> 8);
        at[p->packet_id_at + 1] = (uint8_t)packet_id;
        p->c->unacknowledged++;
    }
    memcpy(at + p->payload_at, &now, 8);
    memcpy(at + p->payload_at + 10, &p->sequence, 4);
    p->sequence++;
    p->c->output_end += p->size;
}

static bool ready(const publisher *p) {
    return !p->c->closed && unsent(p->c) < MOST_UNSENT && p->c->unacknowledged < p->c->receive_maximum;
}

static void read_flow_options(void) {
    publisher_count = number_option("publishers", 1);
    subscriber_count = number_option("subscribers", 1);
    qos = (int)number_option("qos", 0);
    inflight = number_option("inflight", 1000);
    sampled = inflight > 1 ? SAMPLED : 1;
    topics = number_option("topics", 1);
    retain_every = number_option("retain", 0);
    payload_size = number_option("payload", 20);
    if (payload_size < STAMP) fail("a payload has at least %d bytes", STAMP);
    separate = number_option("separate", 0);
    most = (uint64_t)number_option("messages", 1000000000);
}

static void open_clients(void) {
    size_t buffer = subscriber_count > 16 ? 1 << 16 : 1 << 20;
    subscribers = calloc((size_t)subscriber_count, sizeof *subscribers);
    publishers = calloc((size_t)publisher_count, sizeof *publishers);
    expected = calloc((size_t)(subscriber_count * publisher_count), sizeof *expected);
    if (!subscribers || !publishers || !expected) fail("out of memory");
    char name[32];
    for (int i = 0; i < subscriber_count; i++) {
        snprintf(name, sizeof name, "bench-subscriber-%d", i);
        subscribers[i] = connected(name, version_of(i), handle_delivery, buffer);
        subscribers[i]->number = i;
        subscribe(subscribers[i], "live/#", qos);
    }
    for (int i = 0; i < publisher_count; i++) {
        snprintf(name, sizeof name, "bench-publisher-%d", i);
        publishers[i].c = connected(name, version_of(i), handle_puback, 1 << 16);
        prepare(&publishers[i], i);
    }
}

/* Let the publishers take turns for one round. Returns whether there was room for more messages. */
static bool publish_round(uint64_t now) {
    static uint64_t turn;
    uint64_t end = delivered / (uint64_t)subscriber_count + (uint64_t)inflight;
    if (end > most) end = most;
    long blocked = 0;
    for (int i = 0; i < ROUND && sent < end && blocked < publisher_count; i++) {
        publisher *p = &publishers[turn++ % (uint64_t)publisher_count];
        if (!ready(p)) {
            blocked++;
            continue;
        }
        blocked = 0;
        publish(p, separate ? now_ns() : now, retain_every && sent % (uint64_t)retain_every == 0);
        sent++;
        if (separate) flush(p->c);
    }
    for (int i = 0; i < publisher_count; i++)
        if (unsent(publishers[i].c)) flush(publishers[i].c);
    return sent < end && blocked < publisher_count;
}

static bool is_complete(void) {
    return sent == most && delivered >= sent * (uint64_t)subscriber_count && (!qos || acknowledged >= sent);
}

static void report_flow(uint64_t last) {
    report_processor_time(started, last);
    report("published", (double)sent);
    report("messages", (double)delivered);
    report("rate", (double)delivered / seconds_between(started, last));
    report("lost", (double)(sent * (uint64_t)subscriber_count) - (double)delivered);
    report("unacknowledged", qos ? (double)(sent - acknowledged) : 0);
    report("disordered", (double)disordered);
    report("duplicates", (double)duplicates);
    report_waits(&waits);
    end_report();
}

void measure_flow(void) {
    read_flow_options();
    open_clients();
    uint64_t patience = (uint64_t)(seconds_option("patience", 5) * 1e9), known = 0;
    begin_processor_time();
    started = now_ns();
    uint64_t last = started, until = started + (uint64_t)(seconds_option("seconds", 5) * 1e9);
    for (;;) {
        uint64_t now = now_ns();
        if (delivered + acknowledged != known) {
            known = delivered + acknowledged;
            last = now;
        }
        if (now - last > patience || now > deadline()) break;
        if (now > until && most > sent) most = sent;
        if (is_complete()) break;
        bool room = publish_round(now);
        serve(room ? 0 : 50 * MILLISECOND);
        if (qos)
            for (int i = 0; i < subscriber_count; i++)
                if (unsent(subscribers[i])) flush(subscribers[i]);
    }
    report_flow(last);
}
