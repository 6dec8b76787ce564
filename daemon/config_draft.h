/*
 * A configuration that is being read: the values so far, the lines they came from, and the errors. Private to config.c
 * (the table), config_file.c (lines and sections) and config_peers.c.
 */
#ifndef FSDPD_CONFIG_DRAFT_H
#define FSDPD_CONFIG_DRAFT_H

#include "daemon/config.h"

#define CONFIG_ROWS_MAX 32
#define CONFIG_SECTIONS_MAX 8

struct config_draft {
	const char *name; /* of the file, for messages */
	FILE *errors;
	unsigned error_count;
	struct config config;
	unsigned row_lines[CONFIG_ROWS_MAX];         /* where each key of the table was given; 0: not */
	unsigned section_lines[CONFIG_SECTIONS_MAX]; /* where each section began; 0: not */
	unsigned last_line;
	struct config_peer peers[CONFIG_PEERS_MAX];
	unsigned peer_lines[CONFIG_PEERS_MAX];
};

/* Counts an error and writes `FILE:LINE: text`. */
void config_draft_error(struct config_draft *draft, unsigned line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The sections of the table; [peers] is one of them, its keys are ranks. Gives the index, or -1. */
int config_draft_section(const char *name);
const char *const *config_draft_sections(size_t *ret_count);
#define CONFIG_SECTION_PEERS 1

/* `key = value` in a section, as it stands in the file. */
void config_draft_set(struct config_draft *draft, int section, unsigned line, const char *key, const char *value);

/* The lines of a file. */
void config_draft_read_lines(struct config_draft *draft, const char *data, size_t size);

/* `RANK = CONTROL BULK`, and what must hold of all of them. The second fills config.peers and world_size: 0, -ENOMEM.
 */
void config_draft_set_peer(struct config_draft *draft, unsigned line, const char *key, const char *value);
int config_draft_finish_peers(struct config_draft *draft);

#endif
