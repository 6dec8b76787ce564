/*
 * Sends and receives one record of a SOCK_SEQPACKET socket, with descriptors. Owns nothing: the descriptors that it
 * received belong to the caller, or are closed here where the record is not whole. Any thread. It does not look into
 * records.
 */
#include "proto/frame.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* Room for exactly the descriptors that a record may have: the kernel cuts more, and says so. */
union frame_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(FRAME_FDS_MAX * sizeof(int))];
};

int frame_send(int fd, const void *data, size_t size, const int *fds, size_t fd_count)
{
	union frame_control control;
	struct iovec part = { .iov_base = (void *)(size_t)data, .iov_len = size };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t sent;

	/* An empty record could not be told from the end. */
	if (size == 0)
		return -EINVAL;
	if (size > FRAME_BYTES_MAX || fd_count > FRAME_FDS_MAX)
		return -EMSGSIZE;
	if (fd_count > 0) {
		memset(&control, 0, sizeof control);
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		struct cmsghdr *item = CMSG_FIRSTHDR(&header);
		item->cmsg_level = SOL_SOCKET;
		item->cmsg_type = SCM_RIGHTS;
		item->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(item), fds, fd_count * sizeof(int));
	}
	do
		sent = sendmsg(fd, &header, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	return 0;
}

/* The descriptors of all control items; fds has room for all that the control buffer has room for. */
static size_t fds_take(struct msghdr *header, int *fds)
{
	size_t count = 0;

	for (struct cmsghdr *item = CMSG_FIRSTHDR(header); item; item = CMSG_NXTHDR(header, item)) {
		if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS)
			continue;
		size_t fresh = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds + count, CMSG_DATA(item), fresh * sizeof(int));
		count += fresh;
	}
	return count;
}

void frame_discard(const int *fds, size_t count)
{
	const struct linger at_once = { .l_onoff = 0 };

	for (size_t i = 0; i < count; i++) {
		(void)setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once); /* most are no sockets */
		(void)close(fds[i]);
	}
}

long frame_receive(int fd, void *data, int *fds, size_t *ret_fd_count)
{
	union frame_control control;
	struct iovec part = { .iov_base = data, .iov_len = FRAME_BYTES_MAX };
	struct msghdr header = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
	};
	int fresh[FRAME_FDS_MAX];
	size_t count;
	ssize_t size;

	/* A reset says, once, that the other side closed before it had read everything; what it sent before is still to
	 * be had. */
	do {
		header.msg_controllen = sizeof control.bytes;
		size = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
	} while (size < 0 && (errno == EINTR || errno == ECONNRESET));
	if (size < 0)
		return -errno;
	count = fds_take(&header, fresh);
	if (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		frame_discard(fresh, count);
		return -EMSGSIZE;
	}
	/* The end, or an empty record, which nobody of ours sends: whoever does is gone for us. */
	if (size == 0) {
		frame_discard(fresh, count);
		count = 0;
	}
	memcpy(fds, fresh, count * sizeof(int));
	*ret_fd_count = count;
	return (long)size;
}
