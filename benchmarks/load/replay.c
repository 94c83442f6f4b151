/* A new subscription to retained messages: the rate, the first message, and whether each message comes once. */
#include <stdlib.h>

#include "connection.h"
#include "figures.h"
#include "options.h"
#include "packets.h"
#include "scenarios.h"

static long expect;
static uint8_t *seen; /* one bit for each number */
static uint64_t first, distinct, duplicates, strangers, unflagged;

static void handle_replay(connection *c, uint8_t header, const uint8_t *body, uint32_t length) {
    if ((header & KIND) == SUBACK) {
        if (body[length - 1] >= 0x80) fail("SUBSCRIBE refused: 0x%02x", body[length - 1]);
        return;
    }
    if ((header & KIND) != PUBLISH) fail("the subscriber got a packet 0x%02x", header);
    if (!first) first = now_ns();
    publication message = read_publish(c, header, body, length);
    if (message.packet_id) put_puback(c, message.packet_id);
    c->messages++;
    if (!(header & RETAIN)) unflagged++;
    long number = number_of_payload(message.payload, message.payload_length);
    if (number < 0 || number >= expect) {
        strangers++;
    } else if (seen[number / 8] & 1 << number % 8) {
        duplicates++;
    } else {
        seen[number / 8] |= (uint8_t)(1 << number % 8);
        distinct++;
    }
}

void measure_replay(void) {
    expect = number_option("expect", 1);
    seen = calloc((size_t)expect / 8 + 1, 1);
    uint64_t patience = (uint64_t)(seconds_option("patience", 5) * 1e9), known = 0;
    connection *c = connected("bench-replay", protocol(), handle_replay, 1 << 20);
    long memory = broker_memory_kib(), most_memory = memory;
    begin_processor_time();
    put_subscribe(c, text_option("filter", "#"), (int)number_option("qos", 0));
    uint64_t started = now_ns(), last = started, looked = started;
    flush(c);
    while (c->messages < (uint64_t)expect && !c->closed) {
        uint64_t now = now_ns();
        if (now - last > (first ? patience : 6 * patience) || now > deadline()) break;
        if (now - looked > 50 * MILLISECOND) {
            long present = broker_memory_kib();
            if (present > most_memory) most_memory = present;
            looked = now;
        }
        serve(20 * MILLISECOND);
        if (unsent(c)) flush(c);
        if (c->messages != known) {
            known = c->messages;
            last = now_ns();
        }
    }
    report_processor_time(started, last);
    report("messages", (double)c->messages);
    report("rate", (double)c->messages / seconds_between(started, last));
    report("first_ms", 1000 * seconds_between(started, first ? first : last));
    report("lost", (double)expect - (double)distinct);
    report("duplicates", (double)duplicates);
    report("strangers", (double)strangers);
    report("unflagged", (double)unflagged);
    report("memory_before_kib", (double)memory);
    report("memory_most_kib", (double)most_memory);
    /* The last PUBACKs must reach the broker, or it would send these messages again. */
    while (unsent(c) && !c->closed && now_ns() < deadline()) serve(20 * MILLISECOND);
    put_disconnect(c);
    flush(c);
    end_report();
}
