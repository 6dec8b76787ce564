/* The body of struct serve. Private to this folder. */
#ifndef FSDPD_SERVE_SERVE_STATE_H
#define FSDPD_SERVE_SERVE_STATE_H

#include "daemon/serve/control.h"
#include "daemon/serve/listener.h"
#include "daemon/serve/serve.h"
#include "daemon/serve/session.h"

struct serve {
	struct serve_config config;
	struct listener *workers_listener, *control_listener;
	struct session_list sessions;
	unsigned session_count;
	struct control_list controls;
	unsigned control_count;
	sd_event_source *retire; /* armed when a worker is to be detached */
	uint64_t started_ms;
	unsigned seals; /* jobs in exec */
	bool stopped;
	/* counters */
	uint64_t malformed, refused;
	uint64_t warned_ms, warnings;
};

#define SERVE_WARNINGS_MAX 20u /* about connections, in SERVE_WARNINGS_MS: who floods us does not flood the log */
#define SERVE_WARNINGS_MS 10000u

uint64_t serve_now_ms(const struct serve *serve); /* the loop's clock, monotonic */
bool serve_may_warn(struct serve *serve);         /* counts a warning; false: it is one too many */
void serve_retire_soon(struct serve *serve);

#endif
