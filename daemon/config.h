/*
 * The daemon's configuration: an INI file with systemd's look. One table (config.c) names every key with its default,
 * its bounds and what it is for; the parser, --check-config and --help-config all read it. Every error of a file is
 * reported at once, each as `FILE:LINE: what is wrong, what was expected`. Immutable after config_read.
 */
#ifndef FSDPD_CONFIG_H
#define FSDPD_CONFIG_H

#include "fsdp/dtype.h"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CONFIG_DEFAULT_PATH "/etc/fsdpd/fsdpd.conf"
#define CONFIG_FILE_MAX (1u << 20) /* bytes of a file */
#define CONFIG_LINE_MAX 4096u      /* bytes of a line */
#define CONFIG_PEERS_MAX 1024u
#define CONFIG_ERRORS_MAX 64u /* printed; more are counted */
#define CONFIG_PATH_MAX 107   /* bytes of a Unix socket's path */
#define CONFIG_ENDPOINT_MAX 63
#define CONFIG_AUTO 0 /* a budget that the daemon chooses */

struct config_peer {
	char control[CONFIG_ENDPOINT_MAX + 1]; /* "127.0.0.1:7000" or "[::1]:7000": where its control plane listens */
	char bulk[CONFIG_ENDPOINT_MAX + 1];
};

struct config {
	char cluster[FSDP_NAME_MAX + 1];
	uint64_t rank;
	struct config_peer *peers; /* [world_size], heap */
	uint32_t world_size;
	char client_socket[CONFIG_PATH_MAX + 1];
	char control_socket[CONFIG_PATH_MAX + 1];
	uint64_t operation_ms, grace_ms, heartbeat_ms, suspicion_ms, join_ms, read_drain_ms;
	uint64_t gather_bytes, gradient_bytes; /* CONFIG_AUTO: chosen for each model */
	uint64_t window_bytes, chunk_bytes;
	uint64_t exec_threads;
	uint64_t log_level; /* enum log_level */
};

/* Reads the file. 0; FSDP_E_CONFIG after every error was written to errors, a line each; -ENOMEM. Blocks for a file's
 * reading. */
int config_read(const char *path, FILE *errors, struct config *ret_config);
/* The same from memory; name stands for the file in messages. */
int config_parse(const char *name, const char *data, size_t size, FILE *errors, struct config *ret_config);
void config_fini(struct config *config); /* safe on a zeroed struct */

/* What --help-config shows: every section and key with its default and what it is for, itself a file that can be read.
 */
void config_print_help(FILE *out);

#endif
