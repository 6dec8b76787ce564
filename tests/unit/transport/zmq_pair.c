/*
 * The fixture of the ZeroMQ transport. Ports are drawn by the kernel and handed over as listening descriptors, which is
 * also how a socket unit does it.
 */
#include "zmq_pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_S 25
#define STEP_MS 5
#define FDS_MAX 1024

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
}

int zmq_pair_listen(uint16_t port, uint16_t *ret_port)
{
	struct sockaddr_in address = loopback(port);
	socklen_t size = sizeof(address);
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
	    bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, 128) != 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
		close(fd);
		return -1;
	}
	*ret_port = ntohs(address.sin_port);
	return fd;
}

int zmq_pair_connect(uint16_t port)
{
	struct sockaddr_in address = loopback(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static void pair_free(void *context)
{
	struct zmq_pair *pair = context;
	for (int i = 0; i < 2; i++)
		zmq_transport_free(pair->nodes[i]);
	for (int i = 0; i < 2; i++)
		zmq_context_free(pair->contexts[i]);
	free(pair);
}

static void *pair_new(const struct transport_events *events, void *const contexts[2], size_t queue_max)
{
	struct zmq_pair *pair = calloc(1, sizeof(*pair));
	int fds[2];
	if (!pair)
		return NULL;
	clock_gettime(CLOCK_MONOTONIC, &pair->started);
	for (int i = 0; i < 2; i++) {
		fds[i] = zmq_pair_listen(0, &pair->ports[i]);
		snprintf(pair->endpoints[i], sizeof(pair->endpoints[i]), "tcp://127.0.0.1:%u", pair->ports[i]);
	}
	for (int i = 0; i < 2; i++) {
		const char *endpoints[2] = { pair->endpoints[0], pair->endpoints[1] };
		struct zmq_transport_config config = {
			.rank = (uint32_t)i,
			.world_size = 2,
			.bind_endpoint = pair->endpoints[i],
			.bind_fd = fds[i],
			.endpoints = endpoints,
			.high_water_mark = queue_max,
		};
		int rc = zmq_context_new(1, -1, &config.zmq_context);
		pair->contexts[i] = config.zmq_context;
		if (rc == 0)
			rc = zmq_transport_new(&config, events, contexts[i], &pair->nodes[i]);
		if (rc < 0) {
			pair_free(pair);
			return NULL;
		}
	}
	return pair;
}

static struct transport *pair_transport(void *context, int node)
{
	return zmq_transport_transport(((struct zmq_pair *)context)->nodes[node]);
}

static bool pair_step(void *context, unsigned nodes)
{
	struct zmq_pair *pair = context;
	struct pollfd fds[2] = { { .fd = -1 }, { .fd = -1 } };
	for (int i = 0; i < 2; i++)
		if (nodes & 1u << i) {
			zmq_transport_process(pair->nodes[i]);
			fds[i] = (struct pollfd){ .fd = zmq_transport_fd(pair->nodes[i]), .events = POLLIN };
		}
	poll(fds, 2, STEP_MS);
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec - pair->started.tv_sec < PATIENCE_S;
}

/* Both ends are in this process: the one whose peer has the other node's port is ours. */
static void pair_break_link(void *context, int from)
{
	struct zmq_pair *pair = context;
	for (int fd = 0; fd < FDS_MAX; fd++) {
		struct sockaddr_in address;
		socklen_t size = sizeof(address);
		if (getpeername(fd, (struct sockaddr *)&address, &size) == 0 && address.sin_family == AF_INET &&
		    address.sin_port == htons(pair->ports[1 - from]))
			shutdown(fd, SHUT_RDWR);
	}
}

const struct conformance_fixture zmq_pair_fixture = {
	.pair_new = pair_new,
	.pair_free = pair_free,
	.transport = pair_transport,
	.step = pair_step,
	.break_link = pair_break_link,
};
