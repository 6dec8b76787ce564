/*
 * Values of the configuration: their syntax, and the nearest known name for one that is not known. Owns nothing, runs
 * in any thread; bounds are the table's business (config.c).
 */
#include "daemon/config_value.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "daemon/runtime/log.h"
#include "fsdp/error.h"

#define NEAREST_LENGTH_MAX 63

struct unit {
	const char *suffix;
	uint64_t factor;
};

static const struct unit duration_units[] = {
	{ "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "min", 60000 }, { "h", 3600000 },
};
static const struct unit byte_units[] = {
	{ "", 1 }, { "K", 1ull << 10 }, { "M", 1ull << 20 }, { "G", 1ull << 30 }, { "T", 1ull << 40 },
};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Digits at the beginning of text. Gives where they end. */
static int parse_digits(const char *text, const char **ret_end, uint64_t *ret_value)
{
	uint64_t value = 0;
	const char *at = text;

	for (; *at >= '0' && *at <= '9'; at++) {
		if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
			return FSDP_E_INVALID;
	}
	if (at == text || value > INT64_MAX)
		return FSDP_E_INVALID;
	*ret_end = at;
	*ret_value = value;
	return 0;
}

static int parse_with_unit(const char *text, const struct unit *units, size_t count, uint64_t *ret_value)
{
	const char *suffix;
	uint64_t value;

	if (parse_digits(text, &suffix, &value) < 0)
		return FSDP_E_INVALID;
	for (size_t i = 0; i < count; i++) {
		if (strcmp(suffix, units[i].suffix) != 0)
			continue;
		if (__builtin_mul_overflow(value, units[i].factor, &value) || value > INT64_MAX)
			return FSDP_E_INVALID;
		*ret_value = value;
		return 0;
	}
	return FSDP_E_INVALID;
}

int config_value_count(const char *text, uint64_t *ret_count)
{
	const char *end;
	uint64_t value;

	if (parse_digits(text, &end, &value) < 0 || *end)
		return FSDP_E_INVALID;
	*ret_count = value;
	return 0;
}

int config_value_duration(const char *text, uint64_t *ret_ms)
{
	if (strcmp(text, "0") == 0) {
		*ret_ms = 0;
		return 0;
	}
	return parse_with_unit(text, duration_units, COUNT_OF(duration_units), ret_ms);
}

int config_value_bytes(const char *text, uint64_t *ret_bytes)
{
	return parse_with_unit(text, byte_units, COUNT_OF(byte_units), ret_bytes);
}

int config_value_name(const char *text, size_t most)
{
	size_t length = strlen(text);

	if (length == 0 || length > most)
		return FSDP_E_INVALID;
	for (const char *at = text; *at; at++) {
		bool letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9');

		if (!letter && !strchr("._-", *at))
			return FSDP_E_INVALID;
	}
	return 0;
}

int config_value_endpoint(const char *text, bool *ret_loopback)
{
	bool bracketed = text[0] == '[';
	const char *colon = strrchr(text, ':');
	char address[INET6_ADDRSTRLEN];
	struct in6_addr v6;
	struct in_addr v4;
	uint64_t port;
	size_t length;

	if (!colon || config_value_count(colon + 1, &port) < 0 || port == 0 || port > UINT16_MAX)
		return FSDP_E_INVALID;
	if (bracketed && (colon - text < 3 || colon[-1] != ']'))
		return FSDP_E_INVALID;
	length = (size_t)(colon - text) - (bracketed ? 2 : 0);
	if (length >= sizeof(address))
		return FSDP_E_INVALID;
	memcpy(address, text + (bracketed ? 1 : 0), length);
	address[length] = '\0';
	if (bracketed) {
		if (inet_pton(AF_INET6, address, &v6) != 1)
			return FSDP_E_INVALID;
		*ret_loopback = IN6_IS_ADDR_LOOPBACK(&v6);
		return 0;
	}
	if (inet_pton(AF_INET, address, &v4) != 1)
		return FSDP_E_INVALID;
	*ret_loopback = ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
	return 0;
}

int config_value_log_level(const char *text, uint64_t *ret_level)
{
	static const struct {
		const char *name;
		enum log_level level;
	} levels[] = {
		{ "error", LOG_LEVEL_ERROR }, { "warning", LOG_LEVEL_WARNING }, { "notice", LOG_LEVEL_NOTICE },
		{ "info", LOG_LEVEL_INFO },   { "debug", LOG_LEVEL_DEBUG },
	};

	for (size_t i = 0; i < COUNT_OF(levels); i++) {
		if (strcmp(text, levels[i].name) == 0) {
			*ret_level = levels[i].level;
			return 0;
		}
	}
	return FSDP_E_INVALID;
}

static void print_with_unit(uint64_t value, const struct unit *units, size_t count, char *text, size_t size)
{
	const struct unit *best = &units[0];

	for (size_t i = 0; i < count; i++) {
		if (value > 0 && value % units[i].factor == 0 && units[i].factor > best->factor)
			best = &units[i];
	}
	snprintf(text, size, "%llu%s", (unsigned long long)(value / best->factor), best->suffix);
}

void config_value_print_duration(uint64_t ms, char *text, size_t size)
{
	print_with_unit(ms, duration_units, COUNT_OF(duration_units), text, size);
}

void config_value_print_bytes(uint64_t bytes, char *text, size_t size)
{
	print_with_unit(bytes, byte_units, COUNT_OF(byte_units), text, size);
}

/* Edits (insert, remove, replace) that turn a into b; both at most NEAREST_LENGTH_MAX bytes. */
static size_t distance(const char *a, const char *b)
{
	size_t row[NEAREST_LENGTH_MAX + 1];
	size_t length_b = strlen(b);

	for (size_t j = 0; j <= length_b; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= length_b; j++) {
			size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
			size_t shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;

			diagonal = row[j];
			row[j] = replaced < shorter ? replaced : shorter;
		}
	}
	return row[length_b];
}

const char *config_value_nearest(const char *text, const char *const *names, size_t count)
{
	const char *best = NULL;
	size_t best_distance = SIZE_MAX;

	if (strlen(text) > NEAREST_LENGTH_MAX)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		size_t edits;

		if (!names[i] || strlen(names[i]) > NEAREST_LENGTH_MAX)
			continue;
		edits = distance(text, names[i]);
		if (edits < best_distance) {
			best_distance = edits;
			best = names[i];
		}
	}
	/* Further away than half of the word it is a guess, and a wrong guess is worse than none. */
	if (!best || best_distance > (strlen(best) + 1) / 2)
		return NULL;
	return best;
}
