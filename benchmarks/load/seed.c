/* Retained QoS 1 messages with numbered topics: the rate of the PUBACKs. */
#include "connection.h"
#include "figures.h"
#include "options.h"
#include "packets.h"
#include "scenarios.h"

#define MOST_UNSENT 65536
#define MOST_PAYLOAD 131072

static uint64_t acknowledged;

static void handle_puback(connection *c, uint8_t header, const uint8_t *body, uint32_t length) {
    if ((header & KIND) != PUBACK) fail("the publisher got a packet 0x%02x", header);
    note_puback(c, body, length);
    acknowledged++;
}

void measure_seed(void) {
    long first = number_option("first", 0), count = number_option("count", 10000), stride = number_option("stride", 1);
    long window = number_option("window", 1000), payload_size = number_option("payload", NUMBERED_PAYLOAD);
    uint64_t most = (uint64_t)number_option("messages", count);
    uint64_t patience = (uint64_t)(seconds_option("patience", 5) * 1e9);
    if (payload_size < NUMBERED_PAYLOAD || payload_size > MOST_PAYLOAD) fail("--payload is from %d to %d", NUMBERED_PAYLOAD, MOST_PAYLOAD);
    connection *c = connected("bench-seed", protocol(), handle_puback, 1 << 18);
    if (window > c->receive_maximum) window = c->receive_maximum;
    char topic[NUMBERED_TOPIC], payload[MOST_PAYLOAD];
    uint64_t sent = 0, known = 0;
    long offset = 0;
    begin_processor_time();
    uint64_t started = now_ns(), last = started;
    uint64_t until = started + (uint64_t)(seconds_option("seconds", 3600) * 1e9);
    for (;;) {
        uint64_t now = now_ns();
        if (acknowledged != known) {
            known = acknowledged;
            last = now;
        }
        if (c->closed || now - last > patience || now > deadline()) break;
        if (now > until && most > sent) most = sent;
        if (acknowledged == most) break;
        while (sent < most && c->unacknowledged < window && unsent(c) < MOST_UNSENT) {
            write_numbered_topic(topic, first + offset);
            write_numbered_payload(payload, (size_t)payload_size, first + offset);
            put_publish(c, topic, NUMBERED_TOPIC, payload, (size_t)payload_size, 1, 1);
            c->unacknowledged++;
            sent++;
            offset = (offset + stride) % count;
        }
        flush(c);
        serve(50 * MILLISECOND);
    }
    report_processor_time(started, last);
    report("published", (double)sent);
    report("messages", (double)acknowledged);
    report("rate", (double)acknowledged / seconds_between(started, last));
    report("lost", (double)(sent - acknowledged));
    end_report();
}
