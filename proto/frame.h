/*
 * Framing of the two local conversations, worker and control: one SOCK_SEQPACKET record is one message, at most
 * FRAME_BYTES_MAX bytes and FRAME_FDS_MAX descriptors. Used by daemon, library and tools alike.
 */
#ifndef FSDP_PROTO_FRAME_H
#define FSDP_PROTO_FRAME_H

#include <stddef.h>

#define FRAME_BYTES_MAX (128u << 10)
#define FRAME_FDS_MAX 16

/* Sends one record. Descriptors are duplicated by the kernel; the caller keeps its own. Never raises SIGPIPE. 0,
 * -EAGAIN (only on a non-blocking socket), -EPIPE, -EMSGSIZE, other -errno. */
int frame_send(int fd, const void *data, size_t size, const int *fds, size_t fd_count);

/* Receives one record into data (FRAME_BYTES_MAX bytes). Descriptors come close-on-exec and belong to the caller.
 * Returns the size (0: the other side is gone), -EAGAIN, -EMSGSIZE (record or descriptors were cut: everything received
 * is closed), other
 * -errno. fds has room for FRAME_FDS_MAX. */
long frame_receive(int fd, void *data, int *fds, size_t *ret_fd_count);

/* Closes descriptors that came and that nobody wants. Does not wait where a sender meant it to: a TCP socket that
 * lingers would hold up whoever closes it last. */
void frame_discard(const int *fds, size_t count);

#endif
