/* A fleet: thousands of clients that are connected all day, and send a message now and then.
 *
 * Each of --count devices has a topic of its own, and a period of 1 to --period seconds. Half of them
 * send with QoS 1, --retain of a hundred with RETAIN 1. Six subscribers get every message: five by filters with +, one
 * by #. A message is sent when it is due, however many are under way, and its wait at each subscriber is counted from
 * then on: a stall of the broker, or of the generator, counts in full. So all brokers get the same rate.
 *
 *     bytes 0-15 of the payload    the time when the message was due, as hexadecimal digits; then JSON
 *
 * The devices send PINGREQ, as real ones do, if their period is longer than half of their Keep Alive: never here, since
 * the run is shorter.
 *
 * With --storm, all devices then lose their connections at once, as after a power cut, and connect again. They offer
 * their last TLS sessions. The processor time of the broker is counted from the loss on, so the ends of the old
 * connections are part of it. A device waits for its CONNACK from its first attempt on. Meanwhile two plain clients
 * ping, in a process of their own: the handshakes keep this one busy.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "figures.h"
#include "options.h"
#include "packets.h"
#include "pings.h"
#include "scenarios.h"
#include "transport.h"

#define SUBSCRIBERS 6
#define STAMP 16
#define SMALL 512
#define AT_ONCE 64 /* devices that connect at once before the measured time */
#define PING_INTERVAL (5 * MILLISECOND)

typedef struct {
    connection *c;
    uint64_t asked; /* when it first tried to connect */
    void *session;  /* the TLS session for its next connection */
    uint64_t due, period;
    int qos, retain;
} device;

static device *devices;
static long *heap; /* the devices by the time when their next message is due, the first one at 0 */
static long count;
static uint64_t delivered, acknowledged, published, started;
static long admitted, resumed;
static long *refused, refused_count; /* the devices that the broker has closed before CONNACK */
static samples waits, welcomes;

static void handle_delivery(connection *c, uint8_t header, const uint8_t *body, uint32_t length) {
    if ((header & KIND) == SUBACK) return;
    if ((header & KIND) != PUBLISH) fail("a subscriber got a packet 0x%02x", header);
    publication message = read_publish(c, header, body, length);
    if (message.packet_id) put_puback(c, message.packet_id);
    if (header & RETAIN) return; /* retained by an earlier run */
    char stamp[STAMP + 1] = {0};
    memcpy(stamp, message.payload, STAMP);
    add_sample(&waits, now_ns() - strtoull(stamp, NULL, 16));
    delivered++;
}

static void handle_answer(connection *c, uint8_t header, const uint8_t *body, uint32_t length) {
    if ((header & KIND) == CONNACK) {
        note_connack(c, body, length);
        add_sample(&welcomes, now_ns() - devices[c->number].asked);
        resumed += is_resumed(c);
        admitted++;
        return;
    }
    if ((header & KIND) != PUBACK) fail("a device got a packet 0x%02x", header);
    note_puback(c, body, length);
    acknowledged++;
}

static void sink(long at) {
    for (;;) {
        long least = at;
        for (long child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
            if (devices[heap[child]].due < devices[heap[least]].due) least = child;
        if (least == at) return;
        long moved = heap[at];
        heap[at] = heap[least];
        heap[least] = moved;
        at = least;
    }
}

static double chance(void) { return (double)random() / ((double)RAND_MAX + 1); }

static void note_loss(connection *c) {
    if (c->progress < CONNECTED) refused[refused_count++] = c->number;
}

static void connect_device(long number) {
    device *d = &devices[number];
    long port = number_option("device-port", number_option("port", 1883));
    d->c = begin_connection_by(device_transport(), port, handle_answer, SMALL);
    d->c->number = (int)number;
    d->c->version = protocol();
    d->c->lost = note_loss;
    offer_session(d->c, d->session);
    d->session = NULL;
    char name[32];
    snprintf(name, sizeof name, "bench-device-%ld", number);
    put_connect(d->c, name);
    flush(d->c);
}

/* Connect all devices, so many at once. Those that are closed before CONNACK try again. Returns the time of the last
 * CONNACK, also if the others take too long. */
static uint64_t connect_devices(long at_once) {
    uint64_t patience = (uint64_t)(seconds_option("patience", 5) * 1e9), last = now_ns();
    admitted = resumed = refused_count = 0;
    welcomes.count = 0;
    for (long begun = 0; admitted < count;) {
        if (now_ns() > deadline() || now_ns() - last > patience) break;
        for (; begun < count && begun - admitted < at_once; begun++) {
            devices[begun].asked = now_ns();
            connect_device(begun);
        }
        long before = admitted;
        serve(50 * MILLISECOND);
        if (admitted != before) last = now_ns();
        for (; refused_count; refused_count--) {
            device *d = &devices[refused[refused_count - 1]];
            d->session = take_session(d->c);
            end_connection(d->c);
            connect_device(d - devices);
        }
    }
    return last;
}

/* All devices lose their connections, and connect again. */
static void reconnect_devices(long at_once) {
    begin_bystander();
    begin_processor_time();
    uint64_t began = now_ns();
    for (long i = 0; i < count; i++) {
        devices[i].session = take_session(devices[i].c);
        end_connection(devices[i].c);
    }
    uint64_t last = connect_devices(at_once);
    begin_part("storm_");
    report_processor_time(began, last);
    report("messages", (double)admitted);
    report("rate", (double)admitted / seconds_between(began, last));
    report("lost", (double)(count - admitted));
    report("resumed", admitted ? (double)resumed / (double)admitted : 0);
    report_waits(&welcomes);
    end_bystander();
    begin_part("");
}

static void send_message(long number, int size) {
    device *d = &devices[number];
    char topic[96], payload[size + 1];
    int length = snprintf(topic, sizeof topic, "fleet/site%ld/bench-device-%ld/state", number % 20, number);
    int head = snprintf(payload, sizeof payload, "%016" PRIx64 "{\"device\":%ld,\"temperature\":%.2f,\"text\":\"", d->due,
                        number, 20 + 5 * chance());
    for (; head < size - 2; head++) payload[head] = (char)('a' + head % 26);
    memcpy(payload + size - 2, "\"}", 2);
    put_publish(d->c, topic, (size_t)length, payload, (size_t)size, d->qos, d->retain);
    flush(d->c);
    published++;
}

void measure_fleet(void) {
    static const char *filters[SUBSCRIBERS] = {"fleet/+/+/state", "fleet/+/+/+",     "+/+/+/state",
                                               "fleet/+/+/#",     "+/+/+/+",         "#"};
    count = number_option("count", 1000);
    int size = (int)number_option("payload", 300);
    if (size < 100) fail("a payload has at least 100 bytes");
    long retained = number_option("retain", 30);
    double longest = seconds_option("period", 60);
    uint64_t patience = (uint64_t)(seconds_option("patience", 5) * 1e9);
    devices = calloc((size_t)count, sizeof *devices);
    heap = calloc((size_t)count, sizeof *heap);
    refused = calloc((size_t)count, sizeof *refused);
    if (!devices || !heap || !refused) fail("out of memory");
    long storm = number_option("storm", 0);
    if (storm) fork_bystander(PING_INTERVAL);
    long memory = broker_memory_kib();
    connect_devices(AT_ONCE);
    if (admitted < count) fail("%ld of %ld devices are connected", admitted, count);
    report("each_kib", (double)(broker_memory_kib() - memory) / (double)count);
    connection *subscribers[SUBSCRIBERS];
    for (int i = 0; i < SUBSCRIBERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "bench-backend-%d", i);
        subscribers[i] = connected(name, protocol(), handle_delivery, 1 << 18);
        put_subscribe(subscribers[i], filters[i], 1);
        flush(subscribers[i]);
    }
    for (uint64_t end = now_ns() + SECOND; now_ns() < end;) serve(10 * MILLISECOND); /* what earlier runs have retained */
    srandom(1);
    uint64_t begun = now_ns();
    for (long i = 0; i < count; i++) {
        device *d = &devices[i];
        d->period = (uint64_t)((1 + chance() * (longest - 1)) * 1e9);
        d->due = begun + (uint64_t)(chance() * (double)d->period);
        d->qos = i % 2;
        d->retain = i % 100 < retained;
        heap[i] = i;
    }
    for (long i = count / 2; i >= 0; i--) sink(i);
    begin_processor_time();
    started = now_ns();
    uint64_t until = started + (uint64_t)(seconds_option("seconds", 10) * 1e9), last = started, known = 0, answers = 0;
    for (;;) {
        uint64_t now = now_ns();
        if (delivered + acknowledged != known) {
            known = delivered + acknowledged;
            last = now;
        }
        bool over = now > until;
        if (over && delivered >= published * SUBSCRIBERS && acknowledged >= answers) break;
        if ((over && now - last > patience) || now > deadline()) break;
        while (!over && devices[heap[0]].due <= now) {
            device *d = &devices[heap[0]];
            send_message(heap[0], size);
            answers += (uint64_t)d->qos;
            d->due += (uint64_t)((double)d->period * (0.9 + 0.2 * chance()));
            sink(0);
        }
        uint64_t next = devices[heap[0]].due;
        now = now_ns();
        serve(over ? 10 * MILLISECOND : next > now ? next - now : 0);
        for (int i = 0; i < SUBSCRIBERS; i++)
            if (unsent(subscribers[i])) flush(subscribers[i]);
    }
    uint64_t closed = 0;
    for (long i = 0; i < count; i++) closed += devices[i].c->closed;
    report_processor_time(started, last);
    report("messages", (double)published);
    report("rate", (double)published / seconds_between(started, until));
    report("lost", (double)(published * SUBSCRIBERS) - (double)delivered + (double)closed);
    report("unacknowledged", (double)(answers - acknowledged));
    report("memory_kib", (double)broker_memory_kib());
    report_waits(&waits);
    if (storm) {
        for (int i = 0; i < SUBSCRIBERS; i++) end_connection(subscribers[i]); /* the one of # would get the pings */
        reconnect_devices(storm);
    }
    end_report();
}
