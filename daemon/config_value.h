/*
 * What a value of the configuration may look like: durations, sizes, names, endpoints; and which known name somebody
 * may have meant. Pure.
 */
#ifndef FSDPD_CONFIG_VALUE_H
#define FSDPD_CONFIG_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each returns 0, or FSDP_E_INVALID where text is not of that form (or does not fit 63 bits). */
int config_value_count(const char *text, uint64_t *ret_count); /* "12" */
int config_value_duration(const char *text, uint64_t *ret_ms); /* "500ms", "30s", "10m", "1h", "0" */
int config_value_bytes(const char *text, uint64_t *ret_bytes); /* "4096", "64K", "16M", "2G", "1T": powers of 1024 */
int config_value_name(const char *text, size_t most);          /* letters, digits, and . _ - */
int config_value_endpoint(const char *text,
			  bool *ret_loopback); /* a literal address and a port: "127.0.0.1:7000", "[::1]:7000" */
int config_value_log_level(const char *text, uint64_t *ret_level); /* "error" ... "debug" */

/* How values are shown: the shortest form that reads back as the same. */
void config_value_print_duration(uint64_t ms, char *text, size_t size);
void config_value_print_bytes(uint64_t bytes, char *text, size_t size);

/* The one of names[count] (NULLs are skipped) that text is nearest to, or NULL where none is near. */
const char *config_value_nearest(const char *text, const char *const *names, size_t count);

#endif
