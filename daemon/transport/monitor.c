/*
 * Monitors over an inproc pair within the plane's own context. Both ends are read and closed in the plane's thread;
 * ZeroMQ's I/O thread writes.
 */
#include "daemon/transport/monitor.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <zmq.h>

/* A full pair would block the I/O thread while it holds the monitor's lock: room for more connections than a plane sees
 * between two calls of process. */
#define MONITOR_QUEUE_MAX 65536

int monitor_open(struct monitor *monitor, void *zmq_context, void *socket, int events, struct watch *watch)
{
	static _Atomic uint64_t serial; /* names are the context's, which several planes may share in a test */
	char name[64];
	snprintf(name, sizeof(name), "inproc://monitor-%llu", (unsigned long long)atomic_fetch_add(&serial, 1));

	*monitor = (struct monitor){ 0 };
	if (zmq_socket_monitor(socket, name, events) != 0)
		return -errno;
	int room = MONITOR_QUEUE_MAX, linger = 0;
	int rc = 0;
	void *pair = zmq_socket(zmq_context, ZMQ_PAIR);
	if (!pair || zmq_setsockopt(pair, ZMQ_RCVHWM, &room, sizeof(room)) != 0 ||
	    zmq_setsockopt(pair, ZMQ_LINGER, &linger, sizeof(linger)) != 0 || zmq_connect(pair, name) != 0)
		rc = -errno;
	if (rc == 0)
		rc = watch_add(watch, pair, &monitor->pending);
	if (rc == 0) {
		monitor->pair = pair;
		return 0;
	}
	if (pair)
		zmq_close(pair);
	zmq_socket_monitor(socket, NULL, 0);
	return rc;
}

void monitor_close(struct monitor *monitor, void *socket, struct watch *watch)
{
	if (!monitor->pair)
		return;
	struct monitor_event ignored;
	while (monitor_next(monitor,
			    &ignored)) /* if its queue is full, the I/O thread waits with the lock that we need */
		;
	zmq_socket_monitor(socket, NULL, 0);
	watch_remove(watch, monitor->pair);
	zmq_close(monitor->pair);
	*monitor = (struct monitor){ 0 };
}

/* An event is two frames: a number and a value, then an address, which is not needed. */
bool monitor_next(struct monitor *monitor, struct monitor_event *ret_event)
{
	unsigned char frame[6];
	int size = zmq_recv(monitor->pair, frame, sizeof(frame), ZMQ_DONTWAIT);
	if (size != sizeof(frame)) {
		monitor->pending = false;
		return false;
	}
	char address[1];
	zmq_recv(monitor->pair, address, sizeof(address), ZMQ_DONTWAIT);

	uint16_t what;
	memcpy(&what, frame, sizeof(what));
	memcpy(&ret_event->value, frame + sizeof(what), sizeof(ret_event->value));
	ret_event->what = what;
	return true;
}
