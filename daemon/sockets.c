/*
 * Listening sockets, inherited or made. Owns the descriptors until they are taken, and the paths of those that it made:
 * removed at the end, unless something else lies there by then.
 */
#include "daemon/sockets.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/runtime/log.h"
#include "daemon/serve/listener.h"
#include "fsdp/error.h"

static const char *const names[SOCKETS_COUNT] = {
	[SOCKETS_CLIENT] = "client",
	[SOCKETS_CONTROL] = "control",
	[SOCKETS_CONTROL_PLANE] = "control-plane",
	[SOCKETS_BULK_PLANE] = "bulk-plane",
};

/* A TCP listener on a loopback address; why not, in words. */
static const char *check_tcp(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} address = { 0 };
	socklen_t size = sizeof(address);

	if (sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1) <= 0 || getsockname(fd, &address.any, &size) < 0)
		return "it is not a listening TCP socket";
	if (address.any.sa_family == AF_INET && ntohl(address.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET)
		return NULL;
	if (address.any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&address.v6.sin6_addr))
		return NULL;
	return "peers are not authenticated yet: only loopback addresses (127.0.0.0/8, ::1) are accepted";
}

static int take_inherited(struct sockets *sockets, int fd, const char *name)
{
	const char *why = "its name is none of client, control, control-plane and bulk-plane";

	for (int i = 0; i < SOCKETS_COUNT; i++) {
		if (strcmp(name, names[i]) != 0)
			continue;
		if (sockets->fds[i] >= 0)
			why = "there are two of that name";
		else if (i == SOCKETS_CLIENT || i == SOCKETS_CONTROL)
			why = listener_check(fd) < 0 ? "it is not a listening Unix socket of records (SOCK_SEQPACKET)"
						     : NULL;
		else
			why = check_tcp(fd);
		if (!why) {
			sockets->fds[i] = fd;
			return 0;
		}
		break;
	}
	log_event(LOG_LEVEL_ERROR, "an inherited socket cannot be used", "name=" LOG_QUOTED " fd=%d why=" LOG_QUOTED,
		  name, fd, why);
	close(fd);
	return -EINVAL;
}

static int inherit(struct sockets *sockets)
{
	char **given = NULL;
	int count = sd_listen_fds_with_names(1, &given);
	int code = 0;

	if (count < 0) {
		log_event(LOG_LEVEL_ERROR, "inherited sockets cannot be taken", "why=" LOG_QUOTED, strerror(-count));
		return count;
	}
	for (int i = 0; i < count; i++) {
		int one = take_inherited(sockets, SD_LISTEN_FDS_START + i, given[i]);

		if (code == 0)
			code = one;
		free(given[i]);
	}
	free(given);
	return code;
}

static const char *describe_bind(int code)
{
	if (code == -EADDRINUSE)
		return "another process listens there";
	if (code == -EEXIST)
		return "what lies there is not a socket";
	return strerror(-code);
}

static int make(struct sockets *sockets, enum sockets_which which, const char *path)
{
	struct stat status;
	int code;

	if (sockets->fds[which] >= 0)
		return 0;
	code = listener_bind(path, SOCKETS_MODE, &sockets->fds[which]);
	if (code < 0) {
		log_event(LOG_LEVEL_ERROR, "cannot listen", "socket=%s path=" LOG_QUOTED " why=" LOG_QUOTED,
			  names[which], path, describe_bind(code));
		return code;
	}
	if (lstat(path, &status) == 0) {
		sockets->paths[which] = path;
		sockets->device[which] = status.st_dev;
		sockets->inode[which] = status.st_ino;
	}
	return 0;
}

int sockets_init(struct sockets *sockets, const struct config *config)
{
	int code;

	*sockets = (struct sockets){ 0 };
	for (int i = 0; i < SOCKETS_COUNT; i++)
		sockets->fds[i] = -1;
	code = inherit(sockets);
	if (code == 0)
		code = make(sockets, SOCKETS_CLIENT, config->client_socket);
	if (code == 0)
		code = make(sockets, SOCKETS_CONTROL, config->control_socket);
	if (code < 0)
		sockets_fini(sockets);
	return code;
}

int sockets_take(struct sockets *sockets, enum sockets_which which)
{
	int fd = sockets->fds[which];

	sockets->fds[which] = -1;
	return fd;
}

void sockets_fini(struct sockets *sockets)
{
	struct stat status;

	for (int i = 0; i < SOCKETS_COUNT; i++) {
		const char *path = sockets->paths[i];

		if (sockets->fds[i] >= 0)
			close(sockets->fds[i]);
		sockets->fds[i] = -1;
		sockets->paths[i] = NULL;
		if (path && lstat(path, &status) == 0 && status.st_dev == sockets->device[i] &&
		    status.st_ino == sockets->inode[i])
			unlink(path);
	}
}
