/*
 * The log. Owns the level, the identity that every event carries, and one answer: whether stderr is the journal. An
 * event is made in a buffer on the stack and leaves in one write, so events of several threads do not mix. Values may
 * come from outside: control characters in them are escaped, and a quoted value cannot end its quotes, so nobody
 * writes an event or a field that is not theirs.
 */
#include "daemon/runtime/log.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#define LOG_FIELDS_MAX 24u    /* of one event, in the journal */
#define LOG_TEXT_MAX 4096u    /* the caller's fields, before they are escaped */
#define LOG_ESCAPED_MAX 8192u /* and afterwards; what is longer is cut, and ends in "..." */
#define LOG_LINE_MAX (LOG_ESCAPED_MAX + 1024u)
#define LOG_IDENTITY_MAX 256u
#define LOG_QUOTE_BEGIN LOG_QUOTED[0]
#define LOG_QUOTE_END LOG_QUOTED[sizeof(LOG_QUOTED) - 2]

static atomic_int log_level = LOG_LEVEL_INFO;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_identity[LOG_IDENTITY_MAX * 4 + 64]; /* "cluster=... rank=..."; under the lock */

static pthread_once_t log_once = PTHREAD_ONCE_INIT;
static bool log_to_journal;

/* A text that grows up to its room; what does not fit is cut, never in the middle of an escape. */
struct log_text {
	char *data;
	size_t size;
	size_t room; /* with the terminating 0 */
	bool cut;
};

static void log_put(struct log_text *text, const char *data, size_t size)
{
	if (text->cut || text->size + size + 4 > text->room) {
		text->cut = true;
		return;
	}
	memcpy(text->data + text->size, data, size);
	text->size += size;
	text->data[text->size] = 0;
}

static void log_end(struct log_text *text)
{
	if (text->cut) {
		strcpy(text->data + text->size, "..."); /* log_put left room */
		text->size += 3;
	}
}

static void log_put_escaped(struct log_text *text, unsigned char byte, bool quoted)
{
	char escaped[8];
	if (byte < 0x20 || byte == 0x7f) {
		log_put(text, escaped, (size_t)snprintf(escaped, sizeof(escaped), "\\x%02x", byte));
	} else if (quoted && (byte == '"' || byte == '\\')) {
		log_put(text, (char[]){ '\\', (char)byte }, 2);
	} else {
		log_put(text, (const char *)&byte, 1);
	}
}

static unsigned log_count(const char *text, char wanted)
{
	unsigned count = 0;
	for (; *text; text++) {
		count += *text == wanted;
	}
	return count;
}

/* LOG_QUOTED leaves a mark before and behind a value, which become quotes here. A value that brings such a mark of
 * its own, so that there are more than in the format, is an attempt to break out: then the whole is
 * one quoted value. */
static void log_put_fields(struct log_text *text, const char *fields, const char *format)
{
	bool forged = log_count(fields, LOG_QUOTE_BEGIN) != log_count(format, LOG_QUOTE_BEGIN) ||
		      log_count(fields, LOG_QUOTE_END) != log_count(format, LOG_QUOTE_END);
	bool quoted = forged;
	if (forged) {
		log_put(text, "suspect=\"", 9);
	}
	for (const char *at = fields; *at; at++) {
		if (!forged && (*at == LOG_QUOTE_BEGIN || *at == LOG_QUOTE_END)) {
			quoted = *at == LOG_QUOTE_BEGIN;
			log_put(text, "\"", 1);
		} else {
			log_put_escaped(text, (unsigned char)*at, quoted);
		}
	}
	if (forged) {
		log_put(text, "\"", 1);
	}
	log_end(text);
}

/* $JOURNAL_STREAM is DEVICE:INODE of what systemd connected; a stderr redirected since then is another file. */
static void log_find_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	struct stat status;
	unsigned long long device, inode;
	if (stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &status) == 0) {
		log_to_journal = status.st_dev == device && status.st_ino == inode;
	}
}

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

void log_set_identity(const char *cluster, unsigned rank)
{
	char escaped[LOG_IDENTITY_MAX * 4];
	struct log_text text = { .data = escaped, .room = sizeof(escaped) };
	for (const char *at = cluster; *at; at++) {
		log_put_escaped(&text, (unsigned char)(*at == ' ' ? '_' : *at), true);
	}
	escaped[text.size] = 0;
	log_end(&text);
	pthread_mutex_lock(&log_lock);
	snprintf(log_identity, sizeof(log_identity), "cluster=%s rank=%u", escaped, rank);
	pthread_mutex_unlock(&log_lock);
}

static void log_write_line(enum log_level level, const char *event, const char *fields)
{
	static const char *const names[] = { [LOG_LEVEL_ERROR] = "error",
					     [LOG_LEVEL_WARNING] = "warning",
					     [LOG_LEVEL_NOTICE] = "notice",
					     [LOG_LEVEL_INFO] = "info",
					     [LOG_LEVEL_DEBUG] = "debug" };
	struct timespec now;
	struct tm tm;
	char date[32];
	char line[LOG_LINE_MAX + sizeof(log_identity)];
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
	const char *quote = strchr(event, ' ') ? "\"" : "";
	int size = snprintf(line, sizeof(line), "%s.%03ldZ %s event=%s%s%s %s %s", date, now.tv_nsec / 1000000,
			    names[level], quote, event, quote, log_identity, fields);
	size_t length = size < (int)sizeof(line) - 1 ? (size_t)size : sizeof(line) - 2;
	while (length > 0 && line[length - 1] == ' ') {
		length--;
	}
	line[length++] = '\n';
	ssize_t result;
	do {
		result = write(STDERR_FILENO, line, length); /* one write; when it fails there is nobody to tell */
	} while (result < 0 && errno == EINTR);
}

/* One field of the journal, `FSDP_KEY=value`, from `key=value` in [begin, end); false where it is none. */
static bool log_make_field(const char *begin, const char *end, char *field, size_t room)
{
	const char *equals = memchr(begin, '=', (size_t)(end - begin));
	if (!equals || equals == begin || (size_t)(end - begin) + sizeof("FSDP_") > room) {
		return false;
	}
	size_t used = sizeof("FSDP_") - 1;
	memcpy(field, "FSDP_", used);
	for (const char *at = begin; at < equals; at++) {
		if (!isalnum((unsigned char)*at) && *at != '_') {
			return false;
		}
		field[used++] = (char)toupper((unsigned char)*at);
	}
	field[used++] = '=';
	bool quoted = end - equals >= 3 && equals[1] == '"' && end[-1] == '"';
	size_t length = (size_t)(end - equals) - 1 - (quoted ? 2 : 0);
	memcpy(field + used, equals + 1 + (quoted ? 1 : 0), length);
	field[used + length] = 0;
	return true;
}

/* The end of the `key=value` at text: the first blank that is not between quotes. */
static const char *log_find_end(const char *text)
{
	bool quoted = false;
	for (; *text && (quoted || *text != ' '); text++) {
		if (quoted && *text == '\\' && text[1]) {
			text++;
		} else if (*text == '"') {
			quoted = !quoted;
		}
	}
	return text;
}

static void log_send_journal(enum log_level level, const char *event, const char *fields)
{
	char store[2 * LOG_LINE_MAX + sizeof(log_identity)];
	struct iovec vector[LOG_FIELDS_MAX];
	unsigned count = 0;
	size_t used = 0;
	const char *const lists[] = { log_identity, fields };
	for (size_t i = 0; i < 2; i++) {
		size_t room = sizeof(store) - used;
		int size = i == 0 ? snprintf(store + used, room, "FSDP_EVENT=%s", event)
				  : snprintf(store + used, room, "MESSAGE=%s%s%s", event, *fields ? " " : "", fields);
		if (size < 0 || (size_t)size >= room) {
			return; /* no event of ours is that long */
		}
		vector[count++] = (struct iovec){ store + used, (size_t)size };
		used += (size_t)size + 1;
	}
	char priority[] = { 'P', 'R', 'I', 'O', 'R', 'I', 'T', 'Y', '=', (char)('0' + (int)level) };
	vector[count++] = (struct iovec){ priority, sizeof(priority) };
	for (size_t i = 0; i < 2; i++) {
		for (const char *at = lists[i]; *at && count < LOG_FIELDS_MAX;) {
			const char *end = log_find_end(at);
			if (log_make_field(at, end, store + used, sizeof(store) - used)) {
				size_t size = strlen(store + used);
				vector[count++] = (struct iovec){ store + used, size };
				used += size + 1;
			}
			at = *end ? end + 1 : end;
		}
	}
	sd_journal_sendv(vector, (int)count); /* when it fails there is nobody to tell */
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
	if ((int)level > atomic_load_explicit(&log_level, memory_order_relaxed)) {
		return;
	}
	pthread_once(&log_once, log_find_journal);
	char fields[LOG_TEXT_MAX];
	char escaped[LOG_ESCAPED_MAX];
	va_list arguments;
	va_start(arguments, format);
	if (vsnprintf(fields, sizeof(fields), format, arguments) < 0) {
		fields[0] = 0;
	}
	va_end(arguments);
	escaped[0] = 0;
	log_put_fields(&(struct log_text){ .data = escaped, .room = sizeof(escaped) }, fields, format);
	int error = errno;
	pthread_mutex_lock(&log_lock);
	(log_to_journal ? log_send_journal : log_write_line)(level, event, escaped);
	pthread_mutex_unlock(&log_lock);
	errno = error; /* a caller may log first and look afterwards */
}
