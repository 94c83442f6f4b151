/* The command line: SCENARIO --name value --name value ... */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdnoreturn.h>

/* Remember the command line. Fail if an option is unknown or has no value. */
void read_options(int count, char **words);

const char *text_option(const char *name, const char *otherwise);
long number_option(const char *name, long otherwise);
double seconds_option(const char *name, double otherwise);

/* Print {"error": "..."} and end the process. */
noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
