/* The wait of live messages while other clients replay retained messages.
 *
 * A ping that never comes back counts with the time from when it was due to the end.
 */
#include <stdio.h>
#include <stdlib.h>

#include "connection.h"
#include "figures.h"
#include "options.h"
#include "packets.h"
#include "pings.h"
#include "scenarios.h"

static void handle_replay(connection *c, uint8_t header, const uint8_t *body, uint32_t length) {
    (void)body, (void)length;
    if ((header & (KIND | RETAIN)) == (PUBLISH | RETAIN)) c->messages++;
}

void measure_live(void) {
    int replays = (int)number_option("replays", 0);
    uint64_t expect = (uint64_t)number_option("expect", 0), interval = (uint64_t)number_option("interval-us", 1000) * 1000;
    uint64_t patience = (uint64_t)(seconds_option("patience", 5) * 1e9);
    pings *pair = open_pings(interval);
    connection **readers = calloc((size_t)replays + 1, sizeof *readers);
    for (int i = 0; i < replays; i++) {
        char name[32];
        snprintf(name, sizeof name, "bench-reader-%d", i);
        readers[i] = connected(name, protocol(), handle_replay, 1 << 20);
    }
    uint64_t known = 0, ended = 0;
    begin_processor_time();
    for (int i = 0; i < replays; i++) {
        put_subscribe(readers[i], text_option("filter", "#"), 0);
        flush(readers[i]);
    }
    begin_pings(pair);
    uint64_t started = pair->started, last = started;
    uint64_t until = started + (uint64_t)(seconds_option("seconds", 3) * 1e9);
    for (;;) {
        uint64_t now = now_ns(), replayed = 0, complete = 0;
        for (int i = 0; i < replays; i++) {
            replayed += readers[i]->messages;
            complete += readers[i]->messages >= expect;
        }
        if (replayed + pair->waits.count != known) {
            known = replayed + pair->waits.count;
            last = now;
        }
        if (!ended && (replays ? complete == (uint64_t)replays : now > until)) ended = now;
        if (now - last > patience || now > deadline() || pair->near->closed || pair->far->closed) break;
        if (ended && pair->waits.count >= pair->sent) break;
        serve(ended ? 10 * MILLISECOND : send_pings(pair));
    }
    uint64_t now = now_ns(), replayed = 0, lost = end_pings(pair);
    for (int i = 0; i < replays; i++) replayed += readers[i]->messages;
    report_processor_time(started, ended ? ended : now);
    report("messages", (double)(replayed + 2 * (pair->sent - lost)));
    report("replayed", (double)replayed);
    report("replay_rate", (double)replayed / seconds_between(started, ended ? ended : now));
    report("lost", (double)lost + (double)((uint64_t)replays * expect) - (double)replayed);
    report_waits(&pair->waits);
    end_report();
}
