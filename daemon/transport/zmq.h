/*
 * The transport over ZeroMQ: one bound ROUTER for what comes in, one DEALER a peer for what goes out. Everything here
 * is called from the one thread that owns the plane (it may be made in another, before that thread starts).
 *
 * A context holds the I/O thread. Each plane has a context of its own, so that a heartbeat never waits behind a
 * gradient.
 */
#ifndef FSDPD_TRANSPORT_ZMQ_H
#define FSDPD_TRANSPORT_ZMQ_H

#include "daemon/transport/transport.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZMQ_CONTEXT_SOCKETS_MAX 8192 /* three a peer */
#define ZMQ_TRANSPORT_BUDGET 64      /* messages that one call of process hears at most */

/* An I/O context with io_threads threads of its own (1 is right), bound to CPU cpu (-1: any). 0, -ENOMEM, -EMFILE. */
int zmq_context_new(int io_threads, int cpu, void **ret_zmq_context);
/* Waits until everything that the context's sockets held is given back. Its transports are freed before. Takes NULL. */
void zmq_context_free(void *zmq_context);

struct zmq_transport_config {
	void *zmq_context; /* borrowed */
	uint32_t rank, world_size;
	const char *bind_endpoint;    /* "tcp://127.0.0.1:7000"; port * for any */
	int bind_fd;                  /* a listening descriptor for it, inherited (taken on success); -1: none */
	const char *const *endpoints; /* world_size of them, literal addresses; copied; [rank] is not used */
	size_t high_water_mark;       /* messages that one queue holds; above what credits allow */
};

struct zmq_transport;

/* events is borrowed and told from process only. 0, -EINVAL (an endpoint), -EADDRINUSE, -EMFILE, -ENOMEM, other
 * -errno. */
int zmq_transport_new(const struct zmq_transport_config *config, const struct transport_events *events,
		      void *events_context, struct zmq_transport **ret_transport);
/* Ends every connection; says nothing more. Payloads are given back at the latest with the context. Takes NULL. */
void zmq_transport_free(struct zmq_transport *transport);

struct transport *zmq_transport_transport(struct zmq_transport *transport);

/* Where it is bound, with the port that it got. Lives as long as the transport. */
const char *zmq_transport_bound_endpoint(const struct zmq_transport *transport);

/* One descriptor that is readable while there is something to process, for sd-event or poll. Unlike ZeroMQ's own it
 * needs no care: what a send leaves to be looked at, and what process left for the next call, keep it readable. */
int zmq_transport_fd(const struct zmq_transport *transport);

/* Hears what is there, at most ZMQ_TRANSPORT_BUDGET messages (and as many answers), and remakes links that are due.
 * Never blocks. True: there is more.
 *
 * Payloads that the events carry begin at an address that is a multiple of 8. */
bool zmq_transport_process(struct zmq_transport *transport);

/* Waits until there is something to process, extra_fd (-1: none) is readable, or timeout_ms (-1: none) is over. 1:
 * something is there; 0: nothing (also after a signal); -errno. */
int zmq_transport_poll(struct zmq_transport *transport, int extra_fd, int timeout_ms);

#endif
