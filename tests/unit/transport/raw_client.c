/*
 * ZMTP by hand: a greeting of 64 bytes, the NULL mechanism's READY, then frames of a flag byte, a size and a body.
 */
#include "raw_client.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "zmq_pair.h"

#define GREETING_SIZE 64
#define FRAME_MORE 1
#define FRAME_LONG 2
#define FRAME_COMMAND 4

bool raw_client_send(int fd, const void *data, size_t size)
{
	const char *from = data;
	while (size > 0) {
		ssize_t sent = send(fd, from, size, MSG_NOSIGNAL);
		if (sent <= 0)
			return false;
		from += sent;
		size -= (size_t)sent;
	}
	return true;
}

bool raw_client_send_frame(int fd, bool more, uint64_t claimed_size, const void *data, size_t size)
{
	unsigned char head[9] = { (unsigned char)(FRAME_LONG | (more ? FRAME_MORE : 0)) };
	uint64_t big_endian = htobe64(claimed_size);
	memcpy(head + 1, &big_endian, sizeof(big_endian));
	return raw_client_send(fd, head, sizeof(head)) && raw_client_send(fd, data, size);
}

static size_t put_property(unsigned char *out, const char *name, const char *value)
{
	size_t name_size = strlen(name), value_size = strlen(value);
	out[0] = (unsigned char)name_size;
	memcpy(out + 1, name, name_size);
	memset(out + 1 + name_size, 0, 3);
	out[1 + name_size + 3] = (unsigned char)value_size;
	memcpy(out + 1 + name_size + 4, value, value_size);
	return 1 + name_size + 4 + value_size;
}

int raw_client_greet(uint16_t port, const char *identity)
{
	int fd = zmq_pair_connect(port);
	if (fd < 0)
		return -1;
	struct timeval patience = { .tv_sec = 10 };
	int on = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));

	unsigned char greeting[GREETING_SIZE] = { 0xff, [9] = 0x7f, 3, 0, 'N', 'U', 'L', 'L' };
	unsigned char ready[256] = { FRAME_COMMAND, 0, 5, 'R', 'E', 'A', 'D', 'Y' };
	size_t size = 8;
	size += put_property(ready + size, "Socket-Type", "DEALER");
	size += put_property(ready + size, "Identity", identity);
	ready[1] = (unsigned char)(size - 2);
	unsigned char theirs[GREETING_SIZE + 2];
	if (!raw_client_send(fd, greeting, sizeof(greeting)) || !raw_client_send(fd, ready, size) ||
	    recv(fd, theirs, sizeof(theirs), MSG_WAITALL) != sizeof(theirs) ||
	    recv(fd, ready, theirs[GREETING_SIZE + 1], MSG_WAITALL) != theirs[GREETING_SIZE + 1]) {
		close(fd);
		return -1;
	}
	return fd;
}

bool raw_client_is_ended(int fd)
{
	char bytes[256];
	ssize_t got;
	do
		got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	while (got > 0);
	return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

size_t raw_client_count_fds(void)
{
	DIR *directory = opendir("/proc/self/fd");
	size_t count = 0;
	while (directory && readdir(directory))
		count++;
	if (directory)
		closedir(directory);
	return count;
}
