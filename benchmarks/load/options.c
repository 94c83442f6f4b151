#include "options.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const known[] = {
    "port",     "process",  "protocol", "timeout", "patience", "qos",         "payload", "publishers", "subscribers",
    "inflight", "messages", "seconds",  "topics",  "separate", "mixed",       "retain",  "window",     "first",
    "stride",   "count",    "filter",   "expect",  "replays",  "interval-us", "hold",    "burst",      "retained",
    "period",   "tls",      "ca",       "storm",   "websocket", "device-port",
};
static int word_count;
static char **words_given;

noreturn void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("{\"error\": \"");
    vprintf(format, arguments);
    printf("\"}\n");
    va_end(arguments);
    exit(2);
}

void read_options(int count, char **words) {
    word_count = count;
    words_given = words;
    for (int i = 2; i < count; i += 2) {
        size_t option = 0;
        size_t all = sizeof known / sizeof *known;
        while (option < all && (strncmp(words[i], "--", 2) || strcmp(words[i] + 2, known[option]))) option++;
        if (option == all) fail("unknown option %s", words[i]);
        if (i + 1 == count) fail("%s has no value", words[i]);
    }
}

const char *text_option(const char *name, const char *otherwise) {
    const char *found = otherwise; /* the last one prevails */
    for (int i = 2; i + 1 < word_count; i += 2)
        if (!strcmp(words_given[i] + 2, name)) found = words_given[i + 1];
    return found;
}

static double parsed(const char *name, double otherwise) {
    const char *text = text_option(name, NULL);
    if (!text) return otherwise;
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end) fail("--%s %s is no number", name, text);
    return number;
}

long number_option(const char *name, long otherwise) { return (long)parsed(name, (double)otherwise); }

double seconds_option(const char *name, double otherwise) { return parsed(name, otherwise); }
