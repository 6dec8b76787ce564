/*
 * One DEALER. The states and who moves them: CLOSED to CONNECTING by supervision; CONNECTING to UP and back by the
 * monitor; any to CLOSED by a reset, a failed handshake, or supervision when it takes too long. It is told of as
 * connected in UP only.
 */
#include "daemon/transport/dealer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <zmq.h>

#include "daemon/transport/parcel.h"
#include "proto/peer_message.h"

#define DEALER_RECONNECT_MS 50 /* ZeroMQ's own, after an ordinary break */
#define DEALER_RECONNECT_MAX_MS 1000
#define DEALER_PATIENCE_MS 2000 /* then ZeroMQ has given up, or sits on something dead */
#define DEALER_BACKOFF_MS 100   /* between our sockets; doubles */
#define DEALER_BACKOFF_MAX_MS 8000
#define DEALER_EVENTS                                                                                    \
	(ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | \
	 ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)

static int set_options(void *socket, int high_water_mark)
{
	const struct {
		int option, value;
	} options[] = {
		{ ZMQ_LINGER, 0 },
		{ ZMQ_IMMEDIATE, 1 }, /* what is meant for a dead peer must not reach its successor */
		{ ZMQ_SNDHWM, high_water_mark },
		{ ZMQ_RCVHWM, high_water_mark },
		{ ZMQ_SNDBUF, -1 },
		{ ZMQ_RCVBUF, -1 },
		{ ZMQ_HEARTBEAT_IVL, 0 }, /* they would end a long frame */
		{ ZMQ_RECONNECT_IVL, DEALER_RECONNECT_MS },
		{ ZMQ_RECONNECT_IVL_MAX, DEALER_RECONNECT_MAX_MS },
	};
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (zmq_setsockopt(socket, options[i].option, &options[i].value, sizeof(int)) != 0)
			return -errno;
	int64_t frame_max = PEER_PAYLOAD_MAX;
	return zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_max, sizeof(frame_max)) != 0 ? -errno : 0;
}

static void close_socket(struct dealer *dealer)
{
	if (!dealer->socket)
		return;
	monitor_close(&dealer->monitor, dealer->socket, dealer->watch);
	watch_remove(dealer->watch, dealer->socket);
	zmq_close(dealer->socket);
	dealer->socket = NULL;
	dealer->pending = false;
}

static int open_socket(struct dealer *dealer)
{
	void *socket = zmq_socket(dealer->zmq_context, ZMQ_DEALER);
	if (!socket)
		return -errno;
	int rc = set_options(socket, dealer->high_water_mark);
	if (rc < 0)
		goto fail_close;
	rc = watch_add(dealer->watch, socket, &dealer->pending);
	if (rc < 0)
		goto fail_close;
	rc = monitor_open(&dealer->monitor, dealer->zmq_context, socket, DEALER_EVENTS, dealer->watch);
	if (rc < 0)
		goto fail_watch_remove;
	if (zmq_connect(socket, dealer->endpoint) != 0) {
		rc = -errno;
		goto fail_monitor_close;
	}
	dealer->socket = socket;
	return 0;

fail_monitor_close:
	monitor_close(&dealer->monitor, socket, dealer->watch);
fail_watch_remove:
	watch_remove(dealer->watch, socket);
fail_close:
	zmq_close(socket);
	dealer->pending = false;
	return rc;
}

static uint64_t next_backoff(struct dealer *dealer)
{
	uint64_t backoff_ms = dealer->backoff_ms;
	dealer->backoff_ms = 2 * backoff_ms < DEALER_BACKOFF_MAX_MS ? 2 * backoff_ms : DEALER_BACKOFF_MAX_MS;
	return backoff_ms;
}

/* The one function that moves. */
static void move(struct dealer *dealer, enum dealer_state state, uint64_t now_ms)
{
	if (dealer->state == DEALER_UP && state != DEALER_UP)
		dealer->lost = true;
	dealer->state = state;
	switch (state) {
	case DEALER_CLOSED:
		close_socket(dealer);
		dealer->due_ms = now_ms + next_backoff(dealer);
		break;
	case DEALER_CONNECTING:
		dealer->due_ms = now_ms + DEALER_PATIENCE_MS + dealer->backoff_ms;
		break;
	case DEALER_UP:
		dealer->due_ms = 0;
		dealer->backoff_ms = DEALER_BACKOFF_MS;
		break;
	}
	watch_ring(dealer->watch); /* there is something to tell, or another time to wait for */
}

int dealer_init(struct dealer *dealer, const struct dealer_config *config)
{
	*dealer = (struct dealer){
		.rank = config->rank,
		.high_water_mark = (int)config->high_water_mark,
		.zmq_context = config->zmq_context,
		.watch = config->watch,
		.backoff_ms = DEALER_BACKOFF_MS,
	};
	dealer->endpoint = strdup(config->endpoint);
	if (!dealer->endpoint)
		return -ENOMEM;
	int rc = open_socket(dealer);
	if (rc < 0) {
		free(dealer->endpoint);
		*dealer = (struct dealer){ 0 };
		return rc;
	}
	move(dealer, DEALER_CONNECTING, watch_now_ms());
	return 0;
}

void dealer_fini(struct dealer *dealer)
{
	close_socket(dealer);
	free(dealer->endpoint);
	*dealer = (struct dealer){ 0 };
}

int dealer_send(struct dealer *dealer, const void *header, size_t header_size, struct transport_piece payload)
{
	if (dealer->state != DEALER_UP)
		return -ENOTCONN;
	int rc = parcel_send(dealer->socket, header, header_size, payload);
	/* The call may have swallowed the sign that something came in. */
	dealer->pending = true;
	watch_ring(dealer->watch);
	return rc;
}

void dealer_reset(struct dealer *dealer)
{
	if (dealer->state != DEALER_CLOSED)
		move(dealer, DEALER_CLOSED, watch_now_ms());
}

bool dealer_is_pending(const struct dealer *dealer)
{
	return dealer->pending || dealer->monitor.pending || dealer->lost;
}

static void tell_lost(struct dealer *dealer, const struct transport_events *events, void *context)
{
	if (!dealer->lost)
		return;
	dealer->lost = false;
	events->disconnected(context, dealer->rank);
}

static void on_connected(struct dealer *dealer, const struct transport_events *events, void *context)
{
	if (dealer->state == DEALER_UP) /* a break that was not told */
		move(dealer, DEALER_CONNECTING, watch_now_ms());
	tell_lost(dealer, events, context);
	if (!dealer->socket) /* reset from that call */
		return;
	/* The queue of the connection before may still be in place until the socket has heard its commands; what is
	 * sent from now on must go into the new one. */
	int ignored;
	size_t size = sizeof(ignored);
	zmq_getsockopt(dealer->socket, ZMQ_EVENTS, &ignored, &size);
	dealer->pending = true;
	move(dealer, DEALER_UP, 0);
	events->connected(context, dealer->rank);
}

static void process_monitor(struct dealer *dealer, const struct transport_events *events, void *context)
{
	struct monitor_event event;
	while (dealer->socket && monitor_next(&dealer->monitor, &event)) {
		if (event.what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED)
			on_connected(dealer, events, context);
		else if (event.what != ZMQ_EVENT_DISCONNECTED)
			move(dealer, DEALER_CLOSED, watch_now_ms()); /* ZeroMQ would not try again */
		else if (dealer->state == DEALER_UP)
			move(dealer, DEALER_CONNECTING, watch_now_ms());
		tell_lost(dealer, events, context);
	}
}

void dealer_process(struct dealer *dealer, const struct transport_events *events, void *context, size_t *budget)
{
	tell_lost(dealer, events, context);
	/* Breaks and connections first: an answer belongs to the connection that was told of before it. */
	process_monitor(dealer, events, context);
	while (dealer->socket && dealer->pending && *budget > 0) {
		struct parcel parcel;
		int rc = parcel_receive(dealer->socket, false, &parcel);
		if (rc == 0)
			dealer->pending = false;
		if (rc <= 0)
			break;
		(*budget)--;
		if (parcel.payload) /* answers have none */
			parcel.header_size = 0;
		if (dealer->state == DEALER_UP)
			events->answered(context, dealer->rank, parcel.header, parcel.header_size);
		parcel_fini(&parcel);
	}
	tell_lost(dealer, events, context);
}

uint64_t dealer_supervise(struct dealer *dealer, uint64_t now_ms)
{
	if (dealer->due_ms == 0 || now_ms < dealer->due_ms)
		return dealer->due_ms;
	if (dealer->state == DEALER_CONNECTING)
		move(dealer, DEALER_CLOSED, now_ms);
	else if (open_socket(dealer) == 0)
		move(dealer, DEALER_CONNECTING, now_ms);
	else /* no descriptors, most likely: later */
		dealer->due_ms = now_ms + next_backoff(dealer);
	return dealer->due_ms;
}
