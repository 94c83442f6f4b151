#define _GNU_SOURCE
#include "pings.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "options.h"
#include "packets.h"

#define PING "ping/there"
#define PONG "ping/back"
#define PAYLOAD 20

static pings pair;

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
    add_sample(&pair.waits, now_ns() - due);
}

pings *open_pings(uint64_t interval) {
    pair.interval = interval;
    pair.near = connected("bench-near", protocol(), handle_pong, 1 << 16);
    pair.far = connected("bench-far", protocol(), handle_ping, 1 << 16);
    subscribe(pair.near, PONG, 0);
    subscribe(pair.far, PING, 0);
    return &pair;
}

void begin_pings(pings *p) { p->started = p->due = now_ns(); }

uint64_t send_pings(pings *p) {
    char payload[PAYLOAD] = {0};
    for (uint64_t now = now_ns(); p->due <= now; p->due += p->interval, p->sent++) {
        memcpy(payload, &p->due, sizeof p->due);
        put_publish(p->near, PING, strlen(PING), payload, PAYLOAD, 0, 0);
    }
    flush(p->near);
    uint64_t now = now_ns();
    return p->due > now ? p->due - now : 0;
}

uint64_t end_pings(pings *p) {
    uint64_t answered = p->waits.count, now = now_ns();
    for (uint64_t i = answered; i < p->sent; i++) add_sample(&p->waits, now - (p->started + i * p->interval));
    return p->sent - answered;
}

enum phase { WAITING, CALLED, PINGING, TOLD_TO_END, ENDED };

static struct {
    _Atomic int phase;
    uint64_t lost, p99, longest;
} *shared;
static pid_t bystander;

static void ping_beside(uint64_t interval) {
    open_loop();
    while (shared->phase < CALLED && now_ns() < deadline()) serve(10 * MILLISECOND);
    pings *p = open_pings(interval);
    begin_pings(p);
    shared->phase = PINGING;
    uint64_t patience = (uint64_t)(seconds_option("patience", 5) * 1e9), until = 0;
    for (;;) {
        uint64_t now = now_ns();
        if (!until && shared->phase == TOLD_TO_END) until = now + patience;
        if (until && (now > until || p->waits.count >= p->sent)) break;
        if (now > deadline() || p->near->closed || p->far->closed) break;
        serve(until ? MILLISECOND : send_pings(p));
    }
    shared->lost = end_pings(p);
    sort_samples(&p->waits);
    shared->p99 = share_of(&p->waits, 0.99);
    shared->longest = share_of(&p->waits, 1);
    shared->phase = ENDED;
}

void fork_bystander(uint64_t interval) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) fail("out of memory");
    bystander = fork();
    if (bystander < 0) fail("no second process");
    if (bystander) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(STDERR_FILENO, STDOUT_FILENO); /* the report is the parent's */
    ping_beside(interval);
    _exit(0);
}

/* Serve the connections until the other process has come so far. */
static void await_bystander(enum phase phase) {
    while (shared->phase < (int)phase) {
        if (waitpid(bystander, NULL, WNOHANG) == bystander && shared->phase < (int)phase)
            fail("the pinging clients have failed");
        if (now_ns() > deadline()) fail("the pinging clients take too long");
        serve(10 * MILLISECOND);
    }
}

void begin_bystander(void) {
    shared->phase = CALLED;
    await_bystander(PINGING);
}

void end_bystander(void) {
    int pinging = PINGING; /* unless it has ended by itself */
    atomic_compare_exchange_strong(&shared->phase, &pinging, TOLD_TO_END);
    await_bystander(ENDED);
    report("ping_p99_ms", (double)shared->p99 / 1e6);
    report("ping_max_ms", (double)shared->longest / 1e6);
    report("pings_lost", (double)shared->lost);
}
