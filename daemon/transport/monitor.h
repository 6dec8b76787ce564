/*
 * A ZeroMQ socket monitor: what becomes of a socket's connections, read in the thread that owns the socket. A monitor
 * belongs to one socket and ends with it, so that nothing of an older socket is ever taken for its successor's.
 */
#ifndef FSDPD_TRANSPORT_MONITOR_H
#define FSDPD_TRANSPORT_MONITOR_H

#include "daemon/transport/watch.h"
#include <stdbool.h>
#include <stdint.h>

struct monitor {
	void *pair;
	bool pending; /* there may be something to read */
};

struct monitor_event {
	int what;       /* ZMQ_EVENT_* */
	uint32_t value; /* a descriptor, an error, or nothing */
};

int monitor_open(struct monitor *monitor, void *zmq_context, void *socket, int events, struct watch *watch);
/* Before the socket is closed. Takes one that is not open. */
void monitor_close(struct monitor *monitor, void *socket, struct watch *watch);

bool monitor_next(struct monitor *monitor,
		  struct monitor_event *ret_event); /* false: nothing there, and pending is cleared */

#endif
