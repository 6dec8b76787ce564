/*
 * Structured log: one event, its fields as key=value. Goes to the journal where stderr is the journal, else to stderr
 * as one line. Only those who decide what an event means call it: never a library or a pure module. Thread-safe; one
 * event is one write.
 */
#ifndef FSDPD_RUNTIME_LOG_H
#define FSDPD_RUNTIME_LOG_H

enum log_level {
	LOG_LEVEL_ERROR = 3,
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_NOTICE = 5,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7
};

void log_set_level(enum log_level level);
void log_set_identity(const char *cluster, unsigned rank); /* copies; both appear in every later event */

/* The conversion of a value with blanks, or of one that comes from outside:
 *     log_event(LOG_LEVEL_INFO, "sealed", "unit=" LOG_QUOTED " rank=%u", name, rank);
 * log_event turns the two marks around it into quotes, and escapes what is between them. */
#define LOG_QUOTED "\x02%s\x03"

/* event is a sentence (a literal); format (a literal too) is printf-like and gives "key=value key=value" or "".
 * Control characters are escaped. Keeps errno. */
void log_event(enum log_level level, const char *event, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
