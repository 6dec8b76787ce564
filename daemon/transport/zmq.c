/*
 * Puts the plane together: the ROUTER, the DEALERs, and what wakes them. Owns all of them; borrows the context with its
 * I/O thread. Runs in the plane's thread. What messages mean is link.c's.
 */
#include "daemon/transport/zmq.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include <zmq.h>

#include "daemon/transport/dealer.h"
#include "daemon/transport/router.h"
#include "daemon/transport/watch.h"

#define PASSES_MAX \
	4 /* looks at every socket in one call of process: what an event sends is looked at again in the same call */

struct zmq_transport {
	struct transport base; /* first: a struct transport is cast to it */
	const struct transport_events *events;
	void *events_context;
	uint32_t rank, world_size;
	struct watch watch;
	struct router router;
	bool processing;
	struct dealer dealers[]; /* [rank] is zeroes */
};

int zmq_context_new(int io_threads, int cpu, void **ret_zmq_context)
{
	void *context = zmq_ctx_new();
	if (!context)
		return -errno;
	if (zmq_ctx_set(context, ZMQ_IO_THREADS, io_threads) != 0 ||
	    zmq_ctx_set(context, ZMQ_MAX_SOCKETS, ZMQ_CONTEXT_SOCKETS_MAX) != 0 ||
	    (cpu >= 0 && zmq_ctx_set(context, ZMQ_THREAD_AFFINITY_CPU_ADD, cpu) != 0)) {
		int rc = -errno;
		zmq_context_free(context);
		return rc;
	}
	*ret_zmq_context = context;
	return 0;
}

void zmq_context_free(void *zmq_context)
{
	if (!zmq_context)
		return;
	while (zmq_ctx_term(zmq_context) != 0 && errno == EINTR)
		;
}

static struct dealer *dealer_to(struct transport *base, uint32_t rank)
{
	struct zmq_transport *transport = (struct zmq_transport *)base;
	assert(rank < transport->world_size && rank != transport->rank);
	return &transport->dealers[rank];
}

static int transport_send(struct transport *base, uint32_t rank, const void *header, size_t header_size,
			  struct transport_piece payload)
{
	int rc = dealer_send(dealer_to(base, rank), header, header_size, payload);
	return rc == 0 || rc == -EAGAIN || rc == -ENOMEM ? rc : -ENOTCONN;
}

static int transport_answer(struct transport *base, transport_connection connection, const void *header,
			    size_t header_size)
{
	return router_answer(&((struct zmq_transport *)base)->router, connection, header, header_size);
}

static void transport_reset(struct transport *base, uint32_t rank)
{
	dealer_reset(dealer_to(base, rank));
}

static void transport_drop(struct transport *base, transport_connection connection)
{
	router_drop(&((struct zmq_transport *)base)->router, connection);
}

static int open_dealers(struct zmq_transport *transport, const struct zmq_transport_config *config)
{
	for (uint32_t rank = 0; rank < config->world_size; rank++) {
		if (rank == config->rank)
			continue;
		const struct dealer_config dealer = {
			.rank = rank,
			.endpoint = config->endpoints[rank],
			.high_water_mark = config->high_water_mark,
			.zmq_context = config->zmq_context,
			.watch = &transport->watch,
		};
		int rc = dealer_init(&transport->dealers[rank], &dealer);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int zmq_transport_new(const struct zmq_transport_config *config, const struct transport_events *events,
		      void *events_context, struct zmq_transport **ret_transport)
{
	assert(config->world_size > 0 && config->rank < config->world_size);
	assert(config->high_water_mark > 0 && config->high_water_mark <= INT32_MAX);
	struct zmq_transport *transport =
		calloc(1, sizeof(*transport) + config->world_size * sizeof(transport->dealers[0]));
	if (!transport)
		return -ENOMEM;
	transport->base = (struct transport){
		.send = transport_send,
		.answer = transport_answer,
		.reset = transport_reset,
		.drop = transport_drop,
	};
	transport->events = events;
	transport->events_context = events_context;
	transport->rank = config->rank;
	transport->world_size = config->world_size;

	int rc = watch_init(&transport->watch);
	if (rc < 0) {
		free(transport);
		return rc;
	}
	rc = open_dealers(transport, config);
	if (rc == 0) {
		const struct router_config router = {
			.zmq_context = config->zmq_context,
			.watch = &transport->watch,
			.endpoint = config->bind_endpoint,
			.fd = config->bind_fd,
			.world_size = config->world_size,
			.high_water_mark = config->high_water_mark,
		};
		rc = router_init(&transport->router, &router);
	}
	if (rc < 0) {
		zmq_transport_free(transport);
		return rc;
	}
	*ret_transport = transport;
	return 0;
}

void zmq_transport_free(struct zmq_transport *transport)
{
	if (!transport)
		return;
	assert(!transport->processing);
	for (uint32_t rank = 0; rank < transport->world_size; rank++)
		dealer_fini(&transport->dealers[rank]);
	router_fini(&transport->router);
	watch_fini(&transport->watch);
	free(transport);
}

struct transport *zmq_transport_transport(struct zmq_transport *transport)
{
	return &transport->base;
}

const char *zmq_transport_bound_endpoint(const struct zmq_transport *transport)
{
	return transport->router.endpoint;
}

int zmq_transport_fd(const struct zmq_transport *transport)
{
	return transport->watch.epoll_fd;
}

static bool look_at_sockets(struct zmq_transport *transport, size_t *messages, size_t *answers)
{
	for (uint32_t rank = 0; rank < transport->world_size; rank++)
		if (dealer_is_pending(&transport->dealers[rank]))
			dealer_process(&transport->dealers[rank], transport->events, transport->events_context,
				       answers);
	router_process(&transport->router, transport->events, transport->events_context, messages);

	bool more = router_is_pending(&transport->router);
	for (uint32_t rank = 0; rank < transport->world_size && !more; rank++)
		more = dealer_is_pending(&transport->dealers[rank]);
	return more;
}

static void supervise(struct zmq_transport *transport)
{
	uint64_t now_ms = watch_now_ms(), next_ms = router_supervise(&transport->router, now_ms);
	for (uint32_t rank = 0; rank < transport->world_size; rank++) {
		uint64_t due_ms = dealer_supervise(&transport->dealers[rank], now_ms);
		if (due_ms && (!next_ms || due_ms < next_ms))
			next_ms = due_ms;
	}
	watch_arm(&transport->watch, next_ms);
}

bool zmq_transport_process(struct zmq_transport *transport)
{
	assert(!transport->processing);
	transport->processing = true;
	watch_collect(&transport->watch);
	size_t messages = ZMQ_TRANSPORT_BUDGET, answers = ZMQ_TRANSPORT_BUDGET;
	bool more = true;
	for (int pass = 0; pass < PASSES_MAX && more && messages > 0 && answers > 0; pass++)
		more = look_at_sockets(transport, &messages, &answers);
	supervise(transport);
	if (more)
		watch_ring(&transport->watch);
	transport->processing = false;
	return more;
}

int zmq_transport_poll(struct zmq_transport *transport, int extra_fd, int timeout_ms)
{
	struct pollfd fds[] = {
		{ .fd = transport->watch.epoll_fd, .events = POLLIN },
		{ .fd = extra_fd, .events = POLLIN }, /* a negative one is passed over */
	};
	int count = poll(fds, 2, transport->watch.rung ? 0 : timeout_ms);
	if (count < 0)
		return errno == EINTR ? 0 : -errno;
	/* The bell is known to have rung, whatever a poll of no duration saw. */
	return count > 0 || transport->watch.rung;
}
