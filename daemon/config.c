/*
 * The table of the configuration's keys, and what is made of it: the parser's checks, the defaults, the help. Adding a
 * key is adding a row. Reads one file, before any thread starts; owns the list of peers.
 */
#include "daemon/config.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config_draft.h"
#include "daemon/config_value.h"
#include "fsdp/error.h"

enum config_kind { KIND_NAME, KIND_COUNT, KIND_PATH, KIND_DURATION, KIND_BYTES, KIND_BUDGET, KIND_LEVEL };

struct config_row {
	const char *section, *key;
	enum config_kind kind;
	size_t offset;
	const char *by_default; /* NULL: must be given */
	uint64_t least, most;
	const char *help;
};

#define AT(field) offsetof(struct config, field)
#define SECOND 1000ull
#define DAY (86400 * SECOND)
#define KIB 1024ull
#define TIB (KIB * KIB * KIB * KIB)

static const char *const sections[] = { "group", "peers", "sockets", "deadlines", "memory", "threads", "log" };

static const struct config_row rows[] = {
	{ "group", "cluster", KIND_NAME, AT(cluster), NULL, 1, 64,
	  "the cluster's name: daemons of another one are refused" },
	{ "group", "rank", KIND_COUNT, AT(rank), NULL, 0, CONFIG_PEERS_MAX - 1, "which of [peers] this daemon is" },
	{ "sockets", "client", KIND_PATH, AT(client_socket), "/run/fsdpd/client.sock", 1, CONFIG_PATH_MAX,
	  "where trainers connect" },
	{ "sockets", "control", KIND_PATH, AT(control_socket), "/run/fsdpd/control.sock", 1, CONFIG_PATH_MAX,
	  "where fsdpctl connects" },
	{ "deadlines", "operation", KIND_DURATION, AT(operation_ms), "600s", 1, 365 * DAY,
	  "every wait of a trainer ends after this, unless it asks for another" },
	{ "deadlines", "grace", KIND_DURATION, AT(grace_ms), "30s", 0, 365 * DAY,
	  "a suspected peer is waited for this long" },
	{ "deadlines", "heartbeat", KIND_DURATION, AT(heartbeat_ms), "500ms", 10, 60 * SECOND,
	  "how often daemons tell each other that they live" },
	{ "deadlines", "suspicion", KIND_DURATION, AT(suspicion_ms), "1500ms", 20, 3600 * SECOND,
	  "a peer that is not heard for this long is suspected; more than heartbeat" },
	{ "deadlines", "join", KIND_DURATION, AT(join_ms), "600s", 1, 365 * DAY,
	  "the daemon gives up when the group has not formed by then" },
	{ "deadlines", "read-drain", KIND_DURATION, AT(read_drain_ms), "2s", 0, 3600 * SECOND,
	  "a step waits this long for reads in progress" },
	{ "memory", "gather-budget", KIND_BUDGET, AT(gather_bytes), "auto", 4 * KIB, 64 * TIB,
	  "bytes of each model's gather pool; auto: three of its largest unit, or all of it up to 64M" },
	{ "memory", "gradient-budget", KIND_BUDGET, AT(gradient_bytes), "auto", 4 * KIB, 64 * TIB,
	  "bytes of each model's gradient pool; auto: two of its largest unit, or all of it up to 64M" },
	{ "memory", "window", KIND_BYTES, AT(window_bytes), "8M", 64 * KIB, 4 * KIB *KIB *KIB,
	  "bytes that one peer may have on the way to this one, for each model" },
	{ "memory", "chunk", KIND_BYTES, AT(chunk_bytes), "1M", 4 * KIB, KIB *KIB,
	  "bytes of one message of bulk data, at most" },
	{ "threads", "exec", KIND_COUNT, AT(exec_threads), "2", 1, 256, "threads that add, copy and step" },
	{ "log", "level", KIND_LEVEL, AT(log_level), "info", 0, 0, "error, warning, notice, info or debug" },
};

#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))
#define SECTION_COUNT (sizeof(sections) / sizeof(sections[0]))

_Static_assert(ROW_COUNT <= CONFIG_ROWS_MAX, "a row without a line number");
_Static_assert(SECTION_COUNT <= CONFIG_SECTIONS_MAX, "a section without a line number");

void config_draft_error(struct config_draft *draft, unsigned line, const char *format, ...)
{
	va_list arguments;

	if (draft->error_count++ >= CONFIG_ERRORS_MAX)
		return;
	fprintf(draft->errors, "%s:%u: ", draft->name, line);
	va_start(arguments, format);
	vfprintf(draft->errors, format, arguments);
	va_end(arguments);
	fputc('\n', draft->errors);
}

int config_draft_section(const char *name)
{
	for (size_t i = 0; i < SECTION_COUNT; i++) {
		if (strcmp(sections[i], name) == 0)
			return (int)i;
	}
	return -1;
}

const char *const *config_draft_sections(size_t *ret_count)
{
	*ret_count = SECTION_COUNT;
	return sections;
}

/* What a value of this row looks like, for messages: "a duration such as 500ms, 30s, 10m, from 10ms to 1m". */
static void describe_expected(const struct config_row *row, char *text, size_t size)
{
	char least[32], most[32];

	switch (row->kind) {
	case KIND_NAME:
		snprintf(text, size, "a name of 1 to %" PRIu64 " letters, digits, dots, dashes and underscores",
			 row->most);
		return;
	case KIND_COUNT:
		snprintf(text, size, "a number from %" PRIu64 " to %" PRIu64, row->least, row->most);
		return;
	case KIND_PATH:
		snprintf(text, size, "an absolute path of at most %" PRIu64 " bytes", row->most);
		return;
	case KIND_DURATION:
		config_value_print_duration(row->least, least, sizeof(least));
		config_value_print_duration(row->most, most, sizeof(most));
		snprintf(text, size, "a duration such as 500ms, 30s, 10m or 1h, from %s to %s", least, most);
		return;
	case KIND_BYTES:
	case KIND_BUDGET:
		config_value_print_bytes(row->least, least, sizeof(least));
		config_value_print_bytes(row->most, most, sizeof(most));
		snprintf(text, size, "%sa size such as 64K, 16M or 2G, from %s to %s",
			 row->kind == KIND_BUDGET ? "`auto`, or " : "", least, most);
		return;
	case KIND_LEVEL:
		snprintf(text, size, "error, warning, notice, info or debug");
		return;
	}
}

static int parse_number(const struct config_row *row, const char *value, uint64_t *ret_number)
{
	int code;

	switch (row->kind) {
	case KIND_COUNT:
		code = config_value_count(value, ret_number);
		break;
	case KIND_DURATION:
		code = config_value_duration(value, ret_number);
		break;
	case KIND_BUDGET:
		if (strcmp(value, "auto") == 0) {
			*ret_number = CONFIG_AUTO;
			return 0;
		}
		code = config_value_bytes(value, ret_number);
		break;
	case KIND_BYTES:
		code = config_value_bytes(value, ret_number);
		break;
	case KIND_LEVEL:
		return config_value_log_level(value, ret_number);
	case KIND_NAME:
	case KIND_PATH:
	default:
		return FSDP_E_INVALID;
	}
	if (code == 0 && (*ret_number < row->least || *ret_number > row->most))
		return FSDP_E_INVALID;
	return code;
}

static int set_row(struct config *config, const struct config_row *row, const char *value)
{
	char *field = (char *)config + row->offset;
	uint64_t number = 0;
	int code;

	if (row->kind == KIND_NAME || row->kind == KIND_PATH) {
		if (row->kind == KIND_NAME && config_value_name(value, row->most) < 0)
			return FSDP_E_INVALID;
		if (row->kind == KIND_PATH && (value[0] != '/' || strlen(value) > row->most))
			return FSDP_E_INVALID;
		memcpy(field, value, strlen(value) + 1);
		return 0;
	}
	code = parse_number(row, value, &number);
	if (code == 0)
		memcpy(field, &number, sizeof(number));
	return code;
}

static void report_unknown_key(struct config_draft *draft, int section, unsigned line, const char *key)
{
	const char *names[ROW_COUNT] = { NULL };
	char known[512] = "";
	const char *nearest;
	size_t used = 0;

	for (size_t i = 0; i < ROW_COUNT; i++) {
		if (strcmp(rows[i].section, sections[section]) != 0)
			continue;
		names[i] = rows[i].key;
		used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", used > 0 ? ", " : "", rows[i].key);
		assert(used < sizeof(known));
	}
	nearest = config_value_nearest(key, names, ROW_COUNT);
	if (nearest)
		config_draft_error(draft, line, "[%s] unknown key `%.64s`: did you mean `%s`? expected one of: %s",
				   sections[section], key, nearest, known);
	else
		config_draft_error(draft, line, "[%s] unknown key `%.64s`: expected one of: %s", sections[section], key,
				   known);
}

void config_draft_set(struct config_draft *draft, int section, unsigned line, const char *key, const char *value)
{
	char expected[256];

	if (section == CONFIG_SECTION_PEERS) {
		config_draft_set_peer(draft, line, key, value);
		return;
	}
	for (size_t i = 0; i < ROW_COUNT; i++) {
		if (strcmp(rows[i].section, sections[section]) != 0 || strcmp(rows[i].key, key) != 0)
			continue;
		if (draft->row_lines[i] > 0) {
			config_draft_error(draft, line, "[%s] %s was given already in line %u: expected it once",
					   sections[section], key, draft->row_lines[i]);
			return;
		}
		draft->row_lines[i] = line;
		if (set_row(&draft->config, &rows[i], value) < 0) {
			describe_expected(&rows[i], expected, sizeof(expected));
			config_draft_error(draft, line, "[%s] %s: expected %s, got `%.160s`", sections[section], key,
					   expected, value);
		}
		return;
	}
	report_unknown_key(draft, section, line, key);
}

/* The line to name for what a key says or should have said. */
static unsigned line_of(const struct config_draft *draft, const char *key)
{
	for (size_t i = 0; i < ROW_COUNT; i++) {
		unsigned section;

		if (strcmp(rows[i].key, key) != 0)
			continue;
		if (draft->row_lines[i] > 0)
			return draft->row_lines[i];
		section = draft->section_lines[config_draft_section(rows[i].section)];
		return section > 0 ? section : draft->last_line;
	}
	return draft->last_line;
}

static void set_defaults(struct config_draft *draft)
{
	for (size_t i = 0; i < ROW_COUNT; i++) {
		if (rows[i].by_default && set_row(&draft->config, &rows[i], rows[i].by_default) < 0)
			assert(false && "a default that its own row refuses");
	}
}

/* What must hold between values. Only looked at where the values themselves are right. */
static void check_together(struct config_draft *draft)
{
	const struct config *config = &draft->config;
	char text[32];

	if (config->rank >= config->world_size)
		config_draft_error(draft, line_of(draft, "rank"),
				   "[group] rank is %" PRIu64 ", but [peers] has the ranks 0 to %u: "
				   "expected one of them",
				   config->rank, config->world_size - 1);
	if (config->suspicion_ms <= config->heartbeat_ms) {
		config_value_print_duration(config->heartbeat_ms, text, sizeof(text));
		config_draft_error(draft, line_of(draft, "suspicion"),
				   "[deadlines] suspicion: expected more than heartbeat, which is %s", text);
	}
	if (strcmp(config->client_socket, config->control_socket) == 0)
		config_draft_error(draft, line_of(draft, "control"),
				   "[sockets] control: expected another path than client's, got `%s`",
				   config->control_socket);
}

static void check_required(struct config_draft *draft)
{
	char expected[256];

	for (size_t i = 0; i < ROW_COUNT; i++) {
		if (rows[i].by_default || draft->row_lines[i] > 0)
			continue;
		describe_expected(&rows[i], expected, sizeof(expected));
		config_draft_error(draft, line_of(draft, rows[i].key), "[%s] %s is missing: expected %s",
				   rows[i].section, rows[i].key, expected);
	}
}

int config_parse(const char *name, const char *data, size_t size, FILE *errors, struct config *ret_config)
{
	struct config_draft *draft = calloc(1, sizeof(*draft));
	int code;

	if (!draft)
		return -ENOMEM;
	draft->name = name;
	draft->errors = errors;
	draft->last_line = 1;
	set_defaults(draft);
	config_draft_read_lines(draft, data, size);
	check_required(draft);
	code = config_draft_finish_peers(draft);
	if (code == 0 && draft->error_count == 0)
		check_together(draft);
	if (draft->error_count > CONFIG_ERRORS_MAX)
		fprintf(errors, "%s: %u more errors\n", name, draft->error_count - CONFIG_ERRORS_MAX);
	if (code == 0 && draft->error_count > 0)
		code = FSDP_E_CONFIG;
	if (code == 0)
		*ret_config = draft->config;
	else
		config_fini(&draft->config);
	free(draft);
	return code;
}

/* Reads up to a byte more than a file may have. */
static ssize_t read_whole(int fd, char *data, size_t most)
{
	size_t used = 0;

	while (used < most) {
		ssize_t got = read(fd, data + used, most - used);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		used += (size_t)got;
	}
	return (ssize_t)used;
}

int config_read(const char *path, FILE *errors, struct config *ret_config)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *data = NULL;
	ssize_t size;
	int code = FSDP_E_CONFIG;

	if (fd < 0) {
		fprintf(errors,
			"%s: cannot be opened: %s: expected a configuration file (fsdpd --help-config shows one)\n",
			path, strerror(errno));
		return FSDP_E_CONFIG;
	}
	data = malloc(CONFIG_FILE_MAX + 1);
	size = data ? read_whole(fd, data, CONFIG_FILE_MAX + 1) : -ENOMEM;
	if (size < 0)
		fprintf(errors, "%s: cannot be read: %s\n", path, strerror((int)-size));
	else if (size > CONFIG_FILE_MAX)
		fprintf(errors, "%s: expected a file of at most %u bytes\n", path, CONFIG_FILE_MAX);
	else
		code = config_parse(path, data, (size_t)size, errors, ret_config);
	free(data);
	close(fd);
	return code;
}

void config_fini(struct config *config)
{
	free(config->peers);
	memset(config, 0, sizeof(*config));
}

void config_print_help(FILE *out)
{
	char expected[256];

	fprintf(out, "# %s: every key with its default. Keys without one must be given.\n", CONFIG_DEFAULT_PATH);
	for (size_t section = 0; section < SECTION_COUNT; section++) {
		fprintf(out, "\n[%s]\n", sections[section]);
		if (section == CONFIG_SECTION_PEERS)
			fprintf(out,
				"# RANK = CONTROL BULK: where each rank's two planes listen; every rank from 0 on, the "
				"same\n"
				"# on every node. Only loopback addresses are accepted until peers are authenticated.\n"
				"0 = 127.0.0.1:7000 127.0.0.1:7001\n");
		for (size_t i = 0; i < ROW_COUNT; i++) {
			if (strcmp(rows[i].section, sections[section]) != 0)
				continue;
			describe_expected(&rows[i], expected, sizeof(expected));
			fprintf(out, "# %s\n# expects %s\n", rows[i].help, expected);
			if (rows[i].by_default)
				fprintf(out, "%s = %s\n", rows[i].key, rows[i].by_default);
			else
				fprintf(out, "#%s =\n", rows[i].key);
		}
	}
}
