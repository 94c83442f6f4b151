/* Figures: times, the processor time and memory of both sides, percentiles, and the JSON object that reports them. */
#ifndef FIGURES_H
#define FIGURES_H

#include <stddef.h>
#include <stdint.h>

#define SECOND 1000000000ull
#define MILLISECOND 1000000ull

/* Nanoseconds of the monotonic clock. */
uint64_t now_ns(void);

/* Seconds from one point in time to a later one, as a floating-point number. */
double seconds_between(uint64_t from, uint64_t to);

/* Anonymous memory of the broker (--process) in KiB: file-backed pages are not counted. 0 if no process is named. */
long broker_memory_kib(void);

/* Waits, in nanoseconds. */
typedef struct {
    uint64_t *waits;
    size_t count, capacity;
} samples;
void add_sample(samples *all, uint64_t wait);
void sort_samples(samples *all);

/* Of sorted samples, the one below which this share (0 to 1) of them lies; 0 if there are none. */
uint64_t share_of(const samples *all, double share);

/* The processor time that both sides use from now on. */
void begin_processor_time(void);

/* The report is one flat JSON object of numbers. end_report prints it; then the scenario is over. */
void report(const char *name, double value);
void begin_part(const char *name); /* the names of the following figures begin with this one */
void report_waits(samples *all);                       /* p50_ms, p99_ms, p999_ms, max_ms */
void report_processor_time(uint64_t from, uint64_t to); /* seconds, broker_cpu_s, generator_cpu_s */
void end_report(void);

#endif
