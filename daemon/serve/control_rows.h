/*
 * What the control socket's questions are answered with: each function fills one message with at most `most` rows from
 * `position` on, sets `more` where there are others, and `next` to where they begin. 0, -ENOMEM, or FSDP_E_NOT_FOUND
 * with a text in the message. Private to this folder; the loop asks.
 */
#ifndef FSDPD_SERVE_CONTROL_ROWS_H
#define FSDPD_SERVE_CONTROL_ROWS_H

#include <stdint.h>

#include "proto/control_message.h"

struct serve;

struct control_rows {
	struct control_message message;
	uint32_t next;
};

int control_rows_status(struct serve *serve, const char *name, uint32_t position, uint32_t most,
			struct control_rows *ret_rows);
int control_rows_peers(struct serve *serve, const char *name, uint32_t position, uint32_t most,
		       struct control_rows *ret_rows);
int control_rows_models(struct serve *serve, const char *name, uint32_t position, uint32_t most,
			struct control_rows *ret_rows);
int control_rows_units(struct serve *serve, const char *name, uint32_t position, uint32_t most,
		       struct control_rows *ret_rows);
int control_rows_workers(struct serve *serve, const char *name, uint32_t position, uint32_t most,
			 struct control_rows *ret_rows);
void control_rows_fini(struct control_rows *rows);

#endif
