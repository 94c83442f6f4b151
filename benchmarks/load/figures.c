#include "figures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "options.h"

static double broker_before, generator_before;
static char text[8192];
static size_t text_length;
static const char *part = "";

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

double seconds_between(uint64_t from, uint64_t to) { return to > from ? (double)(to - from) / 1e9 : 0; }

/* Read a file of the broker's process. Returns 0 if there is none. */
static int read_process_file(const char *name, char *content, size_t size) {
    long process = number_option("process", 0);
    if (!process) return 0;
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", process, name);
    FILE *file = fopen(path, "r");
    if (!file) fail("the broker's process has ended");
    size_t length = fread(content, 1, size - 1, file);
    fclose(file);
    content[length] = 0;
    return 1;
}

long broker_memory_kib(void) {
    char content[4096];
    if (!read_process_file("status", content, sizeof content)) return 0;
    const char *line = strstr(content, "RssAnon:");
    return line ? strtol(line + 8, NULL, 10) : 0;
}

/* User and system time of all threads of the broker, in seconds. */
static double broker_processor_time(void) {
    char content[4096];
    if (!read_process_file("stat", content, sizeof content)) return 0;
    const char *after_name = strrchr(content, ')');
    unsigned long user, system;
    if (!after_name || sscanf(after_name + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        fail("the broker's processor time cannot be read");
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static double generator_processor_time(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec)
           + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

void begin_processor_time(void) {
    broker_before = broker_processor_time();
    generator_before = generator_processor_time();
}

void add_sample(samples *all, uint64_t wait) {
    if (all->count == all->capacity) {
        all->capacity = all->capacity ? 2 * all->capacity : 4096;
        all->waits = realloc(all->waits, all->capacity * sizeof *all->waits);
        if (!all->waits) fail("out of memory");
    }
    all->waits[all->count++] = wait;
}

void begin_part(const char *name) { part = name; }

void report(const char *name, double value) {
    text_length += (size_t)snprintf(text + text_length, sizeof text - text_length, "%s\"%s%s\": %.9g",
                                    text_length ? ", " : "", part, name, value);
    if (text_length >= sizeof text) fail("the report is too long");
}

static int ascending(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

void sort_samples(samples *all) {
    if (all->count) qsort(all->waits, all->count, sizeof *all->waits, ascending);
}

uint64_t share_of(const samples *all, double share) {
    size_t at = (size_t)(share * (double)all->count);
    return all->count ? all->waits[at < all->count ? at : all->count - 1] : 0;
}

void report_waits(samples *all) {
    if (!all->count) return;
    sort_samples(all);
    report("samples", (double)all->count);
    report("p50_ms", (double)share_of(all, 0.5) / 1e6);
    report("p99_ms", (double)share_of(all, 0.99) / 1e6);
    report("p999_ms", (double)share_of(all, 0.999) / 1e6);
    report("max_ms", (double)share_of(all, 1) / 1e6);
}

void report_processor_time(uint64_t from, uint64_t to) {
    report("seconds", seconds_between(from, to));
    report("generator_cpu_s", generator_processor_time() - generator_before);
    report("broker_cpu_s", broker_processor_time() - broker_before);
}

void end_report(void) { printf("{%s}\n", text); }
