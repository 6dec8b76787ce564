/*
 * Planes. Owns a ZeroMQ context and a transport; passes on what the transport tells to whoever listens now.
 */
#include "daemon/plane.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define PLANE_URL_MAX (CONFIG_ENDPOINT_MAX + 8)
/* Messages that one queue holds. Credits bound what is in flight (a window of chunks a model, at most 4096 of them), so
 * a full queue means a peer that does not read. */
#define PLANE_CONTROL_QUEUE 16384
#define PLANE_BULK_QUEUE 65536

struct plane {
	void *zmq_context;
	struct zmq_transport *transport;
	const struct transport_events *events;
	void *context;
};

static void tell_connected(void *context, uint32_t rank)
{
	struct plane *plane = context;

	plane->events->connected(plane->context, rank);
}

static void tell_disconnected(void *context, uint32_t rank)
{
	struct plane *plane = context;

	plane->events->disconnected(plane->context, rank);
}

static void tell_message(void *context, transport_connection connection, const void *header, size_t header_size,
			 struct buffer *payload)
{
	struct plane *plane = context;

	plane->events->message(plane->context, connection, header, header_size, payload);
}

static void tell_answered(void *context, uint32_t rank, const void *header, size_t header_size)
{
	struct plane *plane = context;

	plane->events->answered(plane->context, rank, header, header_size);
}

static void tell_closed(void *context, transport_connection connection)
{
	struct plane *plane = context;

	plane->events->closed(plane->context, connection);
}

static const struct transport_events plane_events = {
	.connected = tell_connected,
	.disconnected = tell_disconnected,
	.message = tell_message,
	.answered = tell_answered,
	.closed = tell_closed,
};

const char *plane_endpoint(const struct config *config, enum plane_kind kind, uint32_t rank)
{
	assert(rank < config->world_size);
	return kind == PLANE_CONTROL ? config->peers[rank].control : config->peers[rank].bulk;
}

static int make_transport(struct plane *plane, const struct config *config, enum plane_kind kind, int fd)
{
	char(*urls)[PLANE_URL_MAX] = calloc(config->world_size, sizeof(*urls));
	const char **endpoints = calloc(config->world_size, sizeof(*endpoints));
	int code = urls && endpoints ? 0 : -ENOMEM;

	if (code == 0) {
		for (uint32_t rank = 0; rank < config->world_size; rank++) {
			snprintf(urls[rank], sizeof(urls[rank]), "tcp://%s", plane_endpoint(config, kind, rank));
			endpoints[rank] = urls[rank];
		}
		struct zmq_transport_config transport = {
			.zmq_context = plane->zmq_context,
			.rank = (uint32_t)config->rank,
			.world_size = config->world_size,
			.bind_endpoint = endpoints[config->rank],
			.bind_fd = fd,
			.endpoints = endpoints,
			.high_water_mark = kind == PLANE_CONTROL ? PLANE_CONTROL_QUEUE : PLANE_BULK_QUEUE,
		};
		code = zmq_transport_new(&transport, &plane_events, plane, &plane->transport);
	}
	free(endpoints);
	free(urls);
	return code;
}

int plane_new(const struct config *config, enum plane_kind kind, int fd, struct plane **ret_plane)
{
	struct plane *plane = calloc(1, sizeof(*plane));
	int code;

	if (!plane)
		return -ENOMEM;
	code = zmq_context_new(1, -1, &plane->zmq_context);
	if (code == 0)
		code = make_transport(plane, config, kind, fd);
	if (code < 0) {
		plane_free(plane);
		return code;
	}
	*ret_plane = plane;
	return 0;
}

void plane_free(struct plane *plane)
{
	if (!plane)
		return;
	zmq_transport_free(plane->transport);
	zmq_context_free(plane->zmq_context);
	free(plane);
}

void plane_listen(struct plane *plane, const struct transport_events *events, void *context)
{
	plane->events = events;
	plane->context = context;
}

struct zmq_transport *plane_zmq(struct plane *plane)
{
	return plane->transport;
}

struct transport *plane_transport(struct plane *plane)
{
	return zmq_transport_transport(plane->transport);
}
