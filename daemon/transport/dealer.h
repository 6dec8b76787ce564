/*
 * Our link to one peer: a DEALER, its monitor, and the supervision that makes both anew. ZeroMQ reconnects by itself
 * after an ordinary break, but not after a protocol error; and a socket that was reset must not be confused with its
 * successor. Used by zmq.c only, in the plane's thread.
 */
#ifndef FSDPD_TRANSPORT_DEALER_H
#define FSDPD_TRANSPORT_DEALER_H

#include "daemon/transport/monitor.h"
#include "daemon/transport/transport.h"
#include "daemon/transport/watch.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dealer_state {
	DEALER_CLOSED,     /* no socket; made anew at due_ms */
	DEALER_CONNECTING, /* ZeroMQ tries; made anew at due_ms if it does not get there */
	DEALER_UP
};

struct dealer {
	uint32_t rank;
	char *endpoint;
	int high_water_mark;
	void *zmq_context;
	struct watch *watch;
	enum dealer_state state;
	void *socket; /* NULL: closed */
	struct monitor monitor;
	bool pending; /* there may be something to read */
	bool lost;    /* it was up, it is not, and nobody was told */
	uint64_t due_ms, backoff_ms;
};

struct dealer_config {
	uint32_t rank;
	const char *endpoint;
	size_t high_water_mark;
	void *zmq_context;
	struct watch *watch;
};

int dealer_init(struct dealer *dealer, const struct dealer_config *config); /* 0, -EINVAL (endpoint), -errno */
void dealer_fini(struct dealer *dealer);                                    /* takes zeroes */

int dealer_send(struct dealer *dealer, const void *header, size_t header_size, struct transport_piece payload);
void dealer_reset(struct dealer *dealer);

bool dealer_is_pending(const struct dealer *dealer);
/* Tells what is there; takes what it heard from budget. */
void dealer_process(struct dealer *dealer, const struct transport_events *events, void *context, size_t *budget);

/* Makes it anew where that is due. Returns when it has to be called again; 0: not by time. */
uint64_t dealer_supervise(struct dealer *dealer, uint64_t now_ms);

#endif
