/* The wait of live messages while other clients replay retained messages.
 *
 * Every --interval-us a ping is due. The first client publishes it, the second one publishes it back, and its wait is
 * counted from the time when it was due. A ping is sent even if earlier ones are on their way, so a stall of the broker
 * counts in full. A ping that never comes back counts with the time from when it was due to the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "figures.h"
#include "options.h"
#include "packets.h"
#include "scenarios.h"

#define PING "ping/there"
#define PONG "ping/back"
#define PAYLOAD 20

static samples waits;

static void handle_ping(connection *c, uint8_t header, const uint8_t *body, uint32_t length) {
    if ((header & KIND) != PUBLISH) return;
    publication message = read_publish(c, header, body, length);
    put_publish(c, PONG, strlen(PONG), message.payload, message.payload_length, 0, 0);
    flush(c);
}

static void handle_pong(connection *c, uint8_t header, const uint8_t *body, uint32_t length) {
    if ((header & KIND) != PUBLISH) return;
    publication message = read_publish(c, header, body, length);
    uint64_t due;
    memcpy(&due, message.payload, sizeof due);
    add_sample(&waits, now_ns() - due);
}

static void handle_replay(connection *c, uint8_t header, const uint8_t *body, uint32_t length) {
    (void)body, (void)length;
    if ((header & (KIND | RETAIN)) == (PUBLISH | RETAIN)) c->messages++;
}

void measure_live(void) {
    int replays = (int)number_option("replays", 0);
    uint64_t expect = (uint64_t)number_option("expect", 0), interval = (uint64_t)number_option("interval-us", 1000) * 1000;
    uint64_t patience = (uint64_t)(seconds_option("patience", 5) * 1e9);
    connection *near = connected("bench-near", protocol(), handle_pong, 1 << 16);
    connection *far = connected("bench-far", protocol(), handle_ping, 1 << 16);
    subscribe(near, PONG, 0);
    subscribe(far, PING, 0);
    connection **readers = calloc((size_t)replays + 1, sizeof *readers);
    for (int i = 0; i < replays; i++) {
        char name[32];
        snprintf(name, sizeof name, "bench-reader-%d", i);
        readers[i] = connected(name, protocol(), handle_replay, 1 << 20);
    }
    char payload[PAYLOAD] = {0};
    uint64_t pings = 0, known = 0, ended = 0;
    begin_processor_time();
    for (int i = 0; i < replays; i++) {
        put_subscribe(readers[i], text_option("filter", "#"), 0);
        flush(readers[i]);
    }
    uint64_t started = now_ns(), due = started, last = started;
    uint64_t until = started + (uint64_t)(seconds_option("seconds", 3) * 1e9);
    for (;;) {
        uint64_t now = now_ns(), replayed = 0, complete = 0;
        for (int i = 0; i < replays; i++) {
            replayed += readers[i]->messages;
            complete += readers[i]->messages >= expect;
        }
        if (replayed + waits.count != known) {
            known = replayed + waits.count;
            last = now;
        }
        if (!ended && (replays ? complete == (uint64_t)replays : now > until)) ended = now;
        if (now - last > patience || now > deadline() || near->closed || far->closed) break;
        if (ended && waits.count >= pings) break;
        for (; !ended && due <= now; due += interval, pings++) {
            memcpy(payload, &due, sizeof due);
            put_publish(near, PING, strlen(PING), payload, PAYLOAD, 0, 0);
        }
        flush(near);
        now = now_ns();
        serve(ended ? 10 * MILLISECOND : due > now ? due - now : 0);
    }
    uint64_t answered = waits.count, now = now_ns(), replayed = 0;
    for (uint64_t i = answered; i < pings; i++) add_sample(&waits, now - (started + i * interval));
    for (int i = 0; i < replays; i++) replayed += readers[i]->messages;
    report_processor_time(started, ended ? ended : now);
    report("messages", (double)(replayed + 2 * answered));
    report("replayed", (double)replayed);
    report("replay_rate", (double)replayed / seconds_between(started, ended ? ended : now));
    report("lost", (double)(pings - answered) + (double)((uint64_t)replays * expect) - (double)replayed);
    report_waits(&waits);
    end_report();
}
