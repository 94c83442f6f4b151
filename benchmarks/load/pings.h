/* Pings: one client publishes them to another one, which publishes them back. Each is sent when it is due, even if
 * earlier ones are under way, and its wait is counted from then on: a stall of the broker counts in full.
 */
#ifndef PINGS_H
#define PINGS_H

#include "connection.h"
#include "figures.h"

typedef struct {
    connection *near, *far;
    uint64_t interval, started, due; /* nanoseconds; the next ping is due then */
    uint64_t sent;
    samples waits;
} pings;

/* Connect the two clients. There is one pair in a process. */
pings *open_pings(uint64_t interval);

/* The first ping is due now. */
void begin_pings(pings *p);

/* Send the pings that are due. Returns the nanoseconds until the next one is due. */
uint64_t send_pings(pings *p);

/* Count the pings that have not come back, with the time from when they were due until now. Returns their number. */
uint64_t end_pings(pings *p);

/* The same in a process of its own, whatever the generator's own loop does meanwhile. */

/* Start the process, before the scenario opens connections. */
void fork_bystander(uint64_t interval);

/* Let it connect and ping. Returns when its first ping is due. */
void begin_bystander(void);

/* Let it end, and report ping_p99_ms, ping_max_ms, and as pings_lost the number of pings that never came back. */
void end_bystander(void);

#endif
