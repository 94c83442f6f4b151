/* Many clients connect at once, and stay connected: the rate, the worst wait, and the memory of each connection. */
#include <stdio.h>
#include <stdlib.h>

#include "connection.h"
#include "figures.h"
#include "options.h"
#include "packets.h"
#include "scenarios.h"

#define SMALL 256

static long admitted;
static samples waits;

static void handle_connack(connection *c, uint8_t header, const uint8_t *body, uint32_t length) {
    if ((header & KIND) != CONNACK) fail("a client got a packet 0x%02x", header);
    note_connack(c, body, length);
    add_sample(&waits, now_ns() - c->began);
    admitted++;
}

void measure_connects(void) {
    long count = number_option("count", 3000), burst = number_option("burst", count), begun = 0, closed = 0;
    connection **all = calloc((size_t)count, sizeof *all);
    long memory = broker_memory_kib();
    begin_processor_time();
    uint64_t started = now_ns(), last = started;
    while (admitted < count && now_ns() < deadline()) {
        for (; begun < count && begun - admitted < burst; begun++) {
            char name[32];
            connection *c = all[begun] = begin_connection(handle_connack, SMALL);
            c->version = protocol();
            snprintf(name, sizeof name, "bench-connect-%ld", begun);
            put_connect(c, name);
            flush(c);
        }
        long before = admitted;
        serve(50 * MILLISECOND);
        if (admitted != before) last = now_ns();
    }
    report_processor_time(started, last);
    for (uint64_t end = now_ns() + (uint64_t)(seconds_option("hold", 1) * 1e9); now_ns() < end;)
        serve(50 * MILLISECOND);
    for (long i = 0; i < begun; i++) closed += all[i]->closed;
    report("messages", (double)admitted);
    report("rate", (double)admitted / seconds_between(started, last));
    report("lost", (double)(count - admitted + closed));
    report("each_kib", (double)(broker_memory_kib() - memory) / (double)count);
    report_waits(&waits);
    end_report();
}
