/* What a line of the log looks like, and that nobody can forge one. */
#include "daemon/runtime/log.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char text[65536];
static int capture;

/* stderr is a file of our own from here on: Criterion runs each test in a process of its own. */
static void begin(void)
{
	unsetenv("JOURNAL_STREAM");
	capture = memfd_create("stderr", 0);
	dup2(capture, STDERR_FILENO);
}

static const char *logged(void)
{
	ssize_t size = pread(capture, text, sizeof(text) - 1, 0);
	text[size > 0 ? size : 0] = 0;
	return text;
}

static int matches(const char *pattern)
{
	regex_t regex;
	cr_assert_eq(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
	int result = regexec(&regex, logged(), 0, NULL, 0);
	regfree(&regex);
	return result == 0;
}

Test(log, is_one_line_of_time_level_event_identity_and_fields)
{
	begin();
	log_set_identity("demo", 3);
	log_event(LOG_LEVEL_WARNING, "peer suspected", "peer=%u silent_ms=%d", 2, 1500);
	cr_assert(matches("^20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z "
			  "warning event=\"peer suspected\" cluster=demo rank=3 peer=2 silent_ms=1500\n$"),
		  "%s", text);
}

Test(log, needs_neither_fields_nor_identity)
{
	begin();
	log_event(LOG_LEVEL_INFO, "ready", "%s", "");
	cr_assert(matches("Z info event=ready\n$"), "%s", text);
}

Test(log, says_nothing_below_its_level)
{
	begin();
	log_event(LOG_LEVEL_DEBUG, "hidden", "a=%d", 1);
	cr_assert_str_empty(logged());
	log_set_level(LOG_LEVEL_DEBUG);
	log_event(LOG_LEVEL_DEBUG, "shown", "a=%d", 1);
	cr_assert(matches(" debug event=shown +a=1\n$"), "%s", text);
	log_set_level(LOG_LEVEL_ERROR);
	log_event(LOG_LEVEL_WARNING, "hidden", "a=%d", 1);
	cr_assert_null(strstr(logged(), "hidden"));
}

Test(log, escapes_control_characters)
{
	begin();
	log_event(LOG_LEVEL_INFO, "open", "model=%s", "m\n2026 error event=forged\t\x1b[0m\x7f");
	cr_assert_not_null(strstr(logged(), "model=m\\x0a2026 error event=forged\\x09\\x1b[0m\\x7f\n"), "%s", text);
	cr_assert_eq(strchr(text, '\n'), text + strlen(text) - 1);
}

Test(log, quotes_a_value_so_that_it_cannot_end_its_quotes)
{
	begin();
	log_event(LOG_LEVEL_INFO, "open", "model=" LOG_QUOTED " unit=" LOG_QUOTED, "a b\" rank=9", "c\\");
	cr_assert_not_null(strstr(logged(), "model=\"a b\\\" rank=9\" unit=\"c\\\\\"\n"), "%s", text);
}

Test(log, makes_one_quoted_value_of_what_brings_marks_of_its_own)
{
	begin();
	log_event(LOG_LEVEL_INFO, "open", "model=" LOG_QUOTED, "a\x03 rank=9 why=\x02");
	cr_assert_not_null(strstr(logged(), "suspect=\"model=\\x02a\\x03 rank=9 why=\\x02\\x03\"\n"), "%s", text);
}

Test(log, escapes_the_cluster_name)
{
	begin();
	log_set_identity("a b\n\"", 0);
	log_event(LOG_LEVEL_INFO, "ready", "%s", "");
	cr_assert_not_null(strstr(logged(), " cluster=a_b\\x0a\\\" rank=0\n"), "%s", text);
}

Test(log, cuts_what_is_too_long_and_stays_one_line)
{
	begin();
	static char longest[20000];
	memset(longest, '\n', sizeof(longest) - 1);
	log_event(LOG_LEVEL_INFO, "long", "value=%s", longest);
	cr_assert(matches("value=(\\\\x0a)+\\.\\.\\.\n$"), "%s", text);
	cr_assert_lt(strlen(text), 10000);
}

Test(log, goes_to_stderr_where_the_journal_is_another_file)
{
	begin();
	setenv("JOURNAL_STREAM", "1:2", 1);
	log_event(LOG_LEVEL_INFO, "ready", "a=%d", 1);
	cr_assert(matches("event=ready +a=1\n$"), "%s", text);
}

Test(log, keeps_errno)
{
	begin();
	close(STDERR_FILENO);
	errno = ENOENT;
	log_event(LOG_LEVEL_INFO, "ready", "a=%d", 1);
	cr_assert_eq(errno, ENOENT);
}
