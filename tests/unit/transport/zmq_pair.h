/*
 * Two nodes over real loopback sockets, stepped by the test's one thread, each with a context of its own as in a
 * daemon.
 */
#ifndef FSDPD_TESTS_ZMQ_PAIR_H
#define FSDPD_TESTS_ZMQ_PAIR_H

#include "daemon/transport/zmq.h"
#include "tests/conformance/transport_conformance.h"
#include <stdint.h>
#include <time.h>

struct zmq_pair {
	void *contexts[2];
	struct zmq_transport *nodes[2];
	uint16_t ports[2];
	char endpoints[2][64];
	struct timespec started;
};

extern const struct conformance_fixture zmq_pair_fixture; /* its pair is a struct zmq_pair */

/* A listening socket on loopback; port 0: any. -1: it failed. */
int zmq_pair_listen(uint16_t port, uint16_t *ret_port);
/* A plain TCP connection to a port on loopback. */
int zmq_pair_connect(uint16_t port);

#endif
