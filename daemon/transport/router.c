/*
 * The ROUTER and its connections. ZeroMQ knows a connection by a routing id, the kernel by a descriptor that belongs to
 * ZeroMQ and is used again when it is closed. A connection here is both, and the inode of its socket, which is what a
 * descriptor is checked against before it is shut down. States: HEARD to ANSWERED by the first answer; any to ENDED by
 * a drop or a break. An ENDED one stays until its place is needed, so that what it had sent before is still known as
 * its own, and thrown away.
 */
#include "daemon/transport/router.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zmq.h>

#include "daemon/transport/parcel.h"
#include "proto/peer_message.h"

#define ROUTER_BACKLOG 1024
#define ROUTER_HANDSHAKE_MS 10000 /* who has not spoken ZMTP by then is disconnected */
#define ROUTER_STRANGERS_MAX 64   /* connections besides four a rank */
#define ROUTER_INDEX_BITS 16      /* of a connection's number: its place in the table */

enum connection_state { CONNECTION_FREE, CONNECTION_ENDED, CONNECTION_HEARD, CONNECTION_ANSWERED };

struct router_connection {
	enum connection_state state;
	transport_connection number;
	uint32_t routing;
	uint32_t next; /* in its bucket: index plus one */
	int fd;
	ino_t inode;
	uint64_t heard; /* router.clock of its last message */
};

/* The table */

static uint32_t *bucket_of(struct router *router, uint32_t routing)
{
	return &router->buckets[(routing * 2654435761u >> 7) & (router->bucket_count - 1)];
}

static struct router_connection *find(struct router *router, uint32_t routing)
{
	for (uint32_t at = *bucket_of(router, routing); at; at = router->connections[at - 1].next)
		if (router->connections[at - 1].routing == routing)
			return &router->connections[at - 1];
	return NULL;
}

static struct router_connection *find_live(struct router *router, transport_connection number)
{
	size_t index = number & ((1u << ROUTER_INDEX_BITS) - 1);
	if (index >= router->capacity)
		return NULL;
	struct router_connection *connection = &router->connections[index];
	return connection->number == number && connection->state > CONNECTION_ENDED ? connection : NULL;
}

static void unlink_connection(struct router *router, struct router_connection *connection)
{
	uint32_t *link = bucket_of(router, connection->routing);
	while (&router->connections[*link - 1] != connection)
		link = &router->connections[*link - 1].next;
	*link = connection->next;
	connection->state = CONNECTION_FREE;
}

/* Ending */

static bool has_local_port(int fd, uint16_t port)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);
	if (getsockname(fd, (struct sockaddr *)&address, &size) != 0)
		return false;
	if (address.ss_family == AF_INET)
		return ((struct sockaddr_in *)&address)->sin_port == htons(port);
	if (address.ss_family == AF_INET6)
		return ((struct sockaddr_in6 *)&address)->sin6_port == htons(port);
	return false;
}

/* The descriptor is ZeroMQ's, whose thread may close it at any moment, and the kernel may give its number to anything.
 * A duplicate keeps its meaning while it is looked at. */
static void shut_down(const struct router *router, const struct router_connection *connection)
{
	if (connection->fd < 0)
		return;
	int fd = fcntl(connection->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return;
	struct stat status;
	if (fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) && status.st_ino == connection->inode &&
	    has_local_port(fd, router->port))
		shutdown(fd, SHUT_RDWR);
	close(fd);
}

static void end(struct router *router, struct router_connection *connection)
{
	shut_down(router, connection);
	connection->state = CONNECTION_ENDED;
}

static void end_and_tell(struct router *router, struct router_connection *connection,
			 const struct transport_events *events, void *context)
{
	end(router, connection);
	events->closed(context, connection->number);
}

static void mark_gone(struct router *router, uint32_t fd, bool gone)
{
	if (fd >= ROUTER_FDS_MAX)
		return;
	unsigned char bit = (unsigned char)(1u << fd % 8);
	router->gone[fd / 8] = (unsigned char)(gone ? router->gone[fd / 8] | bit : router->gone[fd / 8] & ~bit);
}

static bool is_gone(const struct router *router, int fd)
{
	return fd < 0 || (fd < ROUTER_FDS_MAX && router->gone[fd / 8] >> fd % 8 & 1);
}

static struct router_connection *find_live_fd(struct router *router, int fd)
{
	for (uint32_t i = 0; i < router->capacity; i++)
		if (router->connections[i].state > CONNECTION_ENDED && router->connections[i].fd == fd)
			return &router->connections[i];
	return NULL;
}

static void process_monitor(struct router *router, const struct transport_events *events, void *context)
{
	struct monitor_event event;
	while (monitor_next(&router->monitor, &event)) {
		mark_gone(router, event.value, event.what == ZMQ_EVENT_DISCONNECTED);
		(event.what == ZMQ_EVENT_DISCONNECTED ? intake_closed : intake_opened)(&router->intake,
										       (int)event.value);
		struct router_connection *connection = find_live_fd(router, (int)event.value);
		/* Ended for real too: if this was ever taken for another's break, its peer must learn of it. */
		if (connection && event.what == ZMQ_EVENT_DISCONNECTED)
			end_and_tell(router, connection, events, context);
	}
}

/* Those that ended go first, then those that nobody ever answered, then those that were silent longest. */
static struct router_connection *make_room(struct router *router, const struct transport_events *events, void *context)
{
	struct router_connection *worst = &router->connections[0];
	for (uint32_t i = 1; i < router->capacity; i++) {
		struct router_connection *other = &router->connections[i];
		if (other->state < worst->state || (other->state == worst->state && other->heard < worst->heard))
			worst = other;
	}
	if (worst->state > CONNECTION_ENDED)
		end_and_tell(router, worst, events, context);
	if (worst->state != CONNECTION_FREE)
		unlink_connection(router, worst);
	return worst;
}

/* A connection may be heard of only after it broke: its message was still to be read. Then its descriptor is nobody's,
 * or by now that of a younger connection. */
static bool is_outlived(struct router *router, const struct parcel *parcel)
{
	const struct router_connection *other = find_live_fd(router, parcel->fd);
	return is_gone(router, parcel->fd) || (other && (int32_t)(other->routing - parcel->routing) > 0);
}

static struct router_connection *add(struct router *router, const struct parcel *parcel,
				     const struct transport_events *events, void *context)
{
	/* Whatever had this descriptor before broke before this one was accepted, so its break is among these. */
	process_monitor(router, events, context);
	bool outlived = is_outlived(router, parcel);
	struct router_connection *older = outlived ? NULL : find_live_fd(router, parcel->fd);
	if (older) {
		older->state = CONNECTION_ENDED;
		events->closed(context, older->number);
	}

	struct router_connection *connection = make_room(router, events, context);
	uint32_t index = (uint32_t)(connection - router->connections), *bucket = bucket_of(router, parcel->routing);
	struct stat status;
	bool known = !outlived && fstat(parcel->fd, &status) == 0;
	*connection = (struct router_connection){
		.state = CONNECTION_HEARD,
		.number = (++router->serial << ROUTER_INDEX_BITS) | index,
		.routing = parcel->routing,
		.next = *bucket,
		.fd = known ? parcel->fd : -1,
		.inode = known ? status.st_ino : 0,
	};
	*bucket = index + 1;
	return connection;
}

/* Messages */

static void shut_down_stranger(void *context, int fd, ino_t inode)
{
	const struct router_connection stranger = { .fd = fd, .inode = inode };
	shut_down(context, &stranger);
}

static void hear(struct router *router, const struct parcel *parcel, const struct transport_events *events,
		 void *context)
{
	intake_heard(&router->intake, parcel->fd);
	if (!parcel->known) { /* an identity of its own choice: none of ours */
		struct stat status;
		if (parcel->fd >= 0 && fstat(parcel->fd, &status) == 0)
			shut_down_stranger(router, parcel->fd, status.st_ino);
		return;
	}
	struct router_connection *connection = find(router, parcel->routing);
	if (!connection)
		connection = add(router, parcel, events, context);
	if (connection->state == CONNECTION_ENDED)
		return;
	connection->heard = ++router->clock;
	transport_connection number = connection->number;
	events->message(context, number, parcel->header, parcel->header_size, parcel->payload);
	if (connection->fd < 0 && find_live(router, number)) /* that was its last word */
		end_and_tell(router, connection, events, context);
}

bool router_is_pending(const struct router *router)
{
	return router->pending || router->monitor.pending;
}

void router_process(struct router *router, const struct transport_events *events, void *context, size_t *budget)
{
	while (router->pending && *budget > 0) {
		struct parcel parcel;
		int rc = parcel_receive(router->socket, true, &parcel);
		if (rc == 0)
			router->pending = false;
		if (rc <= 0)
			break;
		(*budget)--;
		hear(router, &parcel, events, context);
		parcel_fini(&parcel);
	}
	if (router->monitor.pending)
		process_monitor(router, events, context);
}

uint64_t router_supervise(struct router *router, uint64_t now_ms)
{
	return intake_check(&router->intake, now_ms, shut_down_stranger, router);
}

int router_answer(struct router *router, transport_connection number, const void *header, size_t header_size)
{
	struct router_connection *connection = find_live(router, number);
	if (!connection)
		return -ENOTCONN;
	int rc = parcel_answer(router->socket, connection->routing, header, header_size);
	/* The call may have swallowed the sign that something came in. */
	router->pending = true;
	watch_ring(router->watch);
	if (rc < 0)
		return -ENOTCONN;
	connection->state = CONNECTION_ANSWERED;
	return 0;
}

void router_drop(struct router *router, transport_connection number)
{
	struct router_connection *connection = find_live(router, number);
	if (connection)
		end(router, connection);
}

size_t router_connection_count(const struct router *router)
{
	size_t count = 0;
	for (uint32_t i = 0; i < router->capacity; i++)
		count += router->connections[i].state > CONNECTION_ENDED;
	return count;
}

/* Life */

static int set_options(void *socket, const struct router_config *config)
{
	const struct {
		int option, value;
	} options[] = {
		{ ZMQ_LINGER, 0 },
		{ ZMQ_ROUTER_MANDATORY, 1 }, /* else an answer to a connection that is gone looks sent */
		{ ZMQ_ROUTER_HANDOVER, 0 },  /* nobody takes another's place */
		{ ZMQ_SNDHWM, (int)config->high_water_mark },
		{ ZMQ_RCVHWM, (int)config->high_water_mark },
		{ ZMQ_SNDBUF, -1 },
		{ ZMQ_RCVBUF, -1 },
		{ ZMQ_BACKLOG, ROUTER_BACKLOG },
		{ ZMQ_HEARTBEAT_IVL, 0 }, /* they would end a long frame */
		{ ZMQ_HANDSHAKE_IVL, ROUTER_HANDSHAKE_MS },
		{ ZMQ_USE_FD, config->fd },
	};
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (zmq_setsockopt(socket, options[i].option, &options[i].value, sizeof(int)) != 0)
			return -errno;
	int64_t frame_max = PEER_PAYLOAD_MAX;
	return zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_max, sizeof(frame_max)) != 0 ? -errno : 0;
}

static int make_table(struct router *router, uint32_t world_size)
{
	router->capacity = 4 * world_size + ROUTER_STRANGERS_MAX;
	assert(router->capacity <= 1u << ROUTER_INDEX_BITS);
	for (router->bucket_count = 1; router->bucket_count < router->capacity;)
		router->bucket_count *= 2;
	router->connections = calloc(router->capacity, sizeof(*router->connections));
	router->buckets = calloc(router->bucket_count, sizeof(*router->buckets));
	return router->connections && router->buckets ? 0 : -ENOMEM;
}

/* Bound last: from there on the descriptor is ZeroMQ's, and nothing can fail any more. */
static int bind_socket(struct router *router, const struct router_config *config)
{
	if (strncmp(config->endpoint, "tcp://", 6) != 0)
		return -EINVAL;
	if (zmq_bind(router->socket, config->endpoint) != 0)
		return -errno;
	size_t size = sizeof(router->endpoint);
	int rc = zmq_getsockopt(router->socket, ZMQ_LAST_ENDPOINT, router->endpoint, &size);
	assert(rc == 0);
	const char *colon = strrchr(router->endpoint, ':');
	router->port = (uint16_t)strtoul(colon ? colon + 1 : "0", NULL, 10);
	return 0;
}

int router_init(struct router *router, const struct router_config *config)
{
	*router = (struct router){ .watch = config->watch };
	int rc = make_table(router, config->world_size);
	if (rc < 0)
		goto fail_free_table;
	router->socket = zmq_socket(config->zmq_context, ZMQ_ROUTER);
	if (!router->socket) {
		rc = -errno;
		goto fail_free_table;
	}
	rc = set_options(router->socket, config);
	if (rc < 0)
		goto fail_close;
	rc = watch_add(router->watch, router->socket, &router->pending);
	if (rc < 0)
		goto fail_close;
	rc = monitor_open(&router->monitor, config->zmq_context, router->socket,
			  ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED, router->watch);
	if (rc < 0)
		goto fail_watch_remove;
	rc = bind_socket(router, config);
	if (rc < 0)
		goto fail_monitor_close;
	return 0;

fail_monitor_close:
	monitor_close(&router->monitor, router->socket, router->watch);
fail_watch_remove:
	watch_remove(router->watch, router->socket);
fail_close:
	zmq_close(router->socket);
fail_free_table:
	free(router->connections);
	free(router->buckets);
	*router = (struct router){ 0 };
	return rc;
}

void router_fini(struct router *router)
{
	if (router->socket) {
		monitor_close(&router->monitor, router->socket, router->watch);
		watch_remove(router->watch, router->socket);
		zmq_close(router->socket);
	}
	intake_fini(&router->intake);
	free(router->connections);
	free(router->buckets);
	*router = (struct router){ 0 };
}
