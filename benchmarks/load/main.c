/* The load generator: MQTT 3.1.1 and 5.0 over loopback, in one thread, for Linux.
 *
 *     generator SCENARIO --name value ...
 *
 * Each scenario prints one flat JSON object of numbers, or {"error": "..."} with status 2. python -m benchmarks runs it.
 *
 * All scenarios
 *     --port P          of the broker on 127.0.0.1
 *     --process P       the broker's process id, for its memory and processor time
 *     --protocol 4|5    4 is MQTT 3.1.1
 *     --timeout S       the longest time of the scenario
 *     --patience S      after so long without a message, the missing messages are lost
 * flow       live messages: publishers to subscribers of live/#
 *     --publishers N --subscribers N --qos 0|1 --payload BYTES
 *     --inflight N      at most N messages are published and not yet delivered to all subscribers
 *     --messages N --seconds S   whichever ends first
 *     --topics N        of each publisher, in turn
 *     --separate 1      each message is sent alone, so it has a segment of its own
 *     --mixed 1         odd clients use MQTT 5.0, even ones MQTT 3.1.1
 *     --retain N        every Nth message has RETAIN 1
 * seed       retained QoS 1 messages with numbered topics, at most --window of them without a PUBACK
 *     --first F --count N        the numbers of the topics
 *     --stride N        the next number is N higher, modulo the count: scattered over all topics
 *     --messages N --seconds S   whichever ends first
 * replay     the retained messages of --filter with --qos, until --expect of them have come
 * live       one ping every --interval-us, even if earlier ones are under way, to another client and back through the
 *            broker, while --replays clients replay --expect messages of --filter; for --seconds without replays
 * connects   --count connections, at most --burst of them without a CONNACK; they stay open for --hold seconds
 * fleet      --count devices, each with a message of --payload bytes every 1 to --period seconds, for
 *            --seconds; --retain of a hundred with RETAIN 1; six subscribers get each message
 *     --tls 1, --websocket 1   how the devices connect; the subscribers use plain TCP
 *     --ca FILE         the authority of the broker's certificate, which is not verified otherwise
 *     --device-port P   of the devices, otherwise --port
 *     --storm N         then all devices connect again, at most N at once, while two more clients ping
 * null       a server that does almost nothing, with --retained messages: it shows how fast the generator is
 */
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "connection.h"
#include "options.h"
#include "scenarios.h"

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"flow", measure_flow}, {"seed", measure_seed},         {"replay", measure_replay},
    {"live", measure_live}, {"connects", measure_connects}, {"fleet", measure_fleet},
    {"null", run_null_broker},
};

int main(int count, char **words) {
    if (count < 2) fail("name a scenario");
    read_options(count, words);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1000ul); /* nanoseconds: pings are sent on time */
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    open_loop();
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(words[1], scenarios[i].name)) {
            scenarios[i].run();
            return 0;
        }
    fail("unknown scenario %s", words[1]);
}
