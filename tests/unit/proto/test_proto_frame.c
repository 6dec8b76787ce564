/* One record is one frame, descriptors come with it, and what is not whole leaves nothing behind. */
#include "proto/frame.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fsdp/error.h"

static int pair[2];
static uint8_t sent[FRAME_BYTES_MAX + 1], got[FRAME_BYTES_MAX];
static int fds[FRAME_FDS_MAX + 1], got_fds[FRAME_FDS_MAX];
static size_t got_count;

static void open_pair(void)
{
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	for (size_t i = 0; i < sizeof sent; i++)
		sent[i] = (uint8_t)(i * 31 >> 3);
	for (size_t i = 0; i < FRAME_FDS_MAX + 1; i++)
		cr_assert_geq(fds[i] = memfd_create("frame", 0), 0);
	got_count = 99;
}
TestSuite(frame, .init = open_pair);

static size_t open_fds(void)
{
	size_t count = 0;
	DIR *folder = opendir("/proc/self/fd");
	cr_assert_not_null(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

/* A record as a stranger may send it: any size, any number of descriptors. */
static void send_raw(size_t size, size_t fd_count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE((FRAME_FDS_MAX + 1) * sizeof(int))];
	} control = { 0 };
	struct iovec part = { .iov_base = sent, .iov_len = size };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };
	if (fd_count > 0) {
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		struct cmsghdr *item = CMSG_FIRSTHDR(&header);
		item->cmsg_level = SOL_SOCKET;
		item->cmsg_type = SCM_RIGHTS;
		item->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(item), fds, fd_count * sizeof(int));
	}
	cr_assert_eq(sendmsg(pair[0], &header, MSG_NOSIGNAL), (ssize_t)size);
}

static long receive(void)
{
	return frame_receive(pair[1], got, got_fds, &got_count);
}

static void assert_same_file(int a, int b)
{
	struct stat one, other;
	cr_assert_eq(fstat(a, &one), 0);
	cr_assert_eq(fstat(b, &other), 0);
	cr_assert_eq(one.st_ino, other.st_ino);
	cr_assert_neq(a, b);
	cr_assert(fcntl(b, F_GETFD) & FD_CLOEXEC);
}

static void assert_frame(size_t size, size_t fd_count)
{
	size_t before = open_fds();
	cr_assert_eq(frame_send(pair[0], sent, size, fds, fd_count), 0);
	cr_assert_eq(receive(), (long)size);
	cr_assert_arr_eq(got, sent, size);
	cr_assert_eq(got_count, fd_count);
	for (size_t i = 0; i < fd_count; i++) {
		assert_same_file(fds[i], got_fds[i]);
		close(got_fds[i]);
	}
	cr_assert_eq(open_fds(), before, "the sender kept its own, the receiver closed the others");
}

Test(frame, a_record_comes_with_no_one_or_sixteen_descriptors)
{
	assert_frame(1, 0);
	assert_frame(5, 1);
	assert_frame(100, 16);
}

Test(frame, the_longest_record_comes_whole)
{
	assert_frame(FRAME_BYTES_MAX, 0);
	assert_frame(FRAME_BYTES_MAX, 16);
}

Test(frame, records_keep_their_bounds_and_their_order)
{
	cr_assert_eq(frame_send(pair[0], "abc", 3, NULL, 0), 0);
	cr_assert_eq(frame_send(pair[0], "de", 2, fds, 2), 0);
	cr_assert_eq(receive(), 3);
	cr_assert_arr_eq(got, "abc", 3);
	cr_assert_eq(got_count, 0);
	cr_assert_eq(receive(), 2);
	cr_assert_arr_eq(got, "de", 2);
	cr_assert_eq(got_count, 2);
}

Test(frame, more_than_a_maximum_is_not_sent)
{
	cr_assert_eq(frame_send(pair[0], sent, FRAME_BYTES_MAX + 1, NULL, 0), -EMSGSIZE);
	cr_assert_eq(frame_send(pair[0], sent, 1, fds, FRAME_FDS_MAX + 1), -EMSGSIZE);
	cr_assert_eq(frame_send(pair[0], sent, 0, NULL, 0), -EINVAL);
	cr_assert_eq(fcntl(pair[1], F_SETFL, O_NONBLOCK), 0);
	cr_assert_eq(receive(), -EAGAIN);
}

Test(frame, a_record_that_is_too_long_closes_its_descriptors)
{
	size_t before = open_fds();
	send_raw(FRAME_BYTES_MAX + 1, 3);
	cr_assert_eq(receive(), -EMSGSIZE);
	cr_assert_eq(open_fds(), before);
	assert_frame(7, 1);
}

Test(frame, a_record_of_too_many_descriptors_closes_those_that_came)
{
	size_t before = open_fds();
	send_raw(10, FRAME_FDS_MAX + 1);
	cr_assert_eq(receive(), -EMSGSIZE);
	cr_assert_eq(open_fds(), before);
	assert_frame(7, 16);
}

/* A TCP socket with more to send than its peer reads, told to linger for 5 s. */
static int lingering_socket(int *ret_peer)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof address;
	const struct linger linger = { .l_onoff = 1, .l_linger = 5 };
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert_eq(bind(listener, (struct sockaddr *)&address, size), 0);
	cr_assert_eq(listen(listener, 1), 0);
	cr_assert_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
	cr_assert_eq(connect(fd, (struct sockaddr *)&address, size), 0);
	cr_assert_geq(*ret_peer = accept(listener, NULL, NULL), 0);
	close(listener);
	while (send(fd, sent, sizeof sent, MSG_DONTWAIT) > 0)
		;
	cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
	return fd;
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

Test(frame, a_socket_that_lingers_is_discarded_at_once)
{
	int peer, lingering = lingering_socket(&peer);
	cr_assert_eq(frame_send(pair[0], sent, 1, &lingering, 1), 0);
	close(lingering); /* the one that travels is the last */
	cr_assert_eq(frame_receive(pair[1], got, got_fds, &got_count), 1);
	cr_assert_eq(got_count, 1);
	double before = seconds();
	frame_discard(got_fds, got_count);
	cr_assert_lt(seconds() - before, 2.0);
	close(peer);
}

Test(frame, an_empty_record_is_the_end_and_closes_its_descriptors)
{
	size_t before = open_fds();
	send_raw(0, 2);
	cr_assert_eq(receive(), 0);
	cr_assert_eq(got_count, 0);
	cr_assert_eq(open_fds(), before);
}

Test(frame, the_end_is_zero_after_everything_that_was_sent)
{
	cr_assert_eq(frame_send(pair[0], "last", 4, fds, 1), 0);
	close(pair[0]);
	cr_assert_eq(receive(), 4);
	cr_assert_eq(got_count, 1);
	cr_assert_eq(receive(), 0);
	cr_assert_eq(got_count, 0);
	cr_assert_eq(receive(), 0);
}

Test(frame, an_answer_comes_although_its_sender_left_something_unread)
{
	cr_assert_eq(frame_send(pair[1], "a question", 10, NULL, 0), 0);
	cr_assert_eq(frame_send(pair[0], "no", 2, NULL, 0), 0);
	close(pair[0]);
	cr_assert_eq(receive(), 2);
	cr_assert_arr_eq(got, "no", 2);
	cr_assert_eq(receive(), 0);
}

Test(frame, sending_to_who_is_gone_raises_no_signal)
{
	signal(SIGPIPE, SIG_DFL);
	close(pair[1]);
	cr_assert_eq(frame_send(pair[0], "x", 1, NULL, 0), -EPIPE);
}

Test(frame, sending_to_who_left_something_unread_is_a_broken_pipe)
{
	cr_assert_eq(frame_send(pair[0], "x", 1, NULL, 0), 0);
	close(pair[1]);
	cr_assert_eq(frame_send(pair[0], "x", 1, NULL, 0), -EPIPE);
	cr_assert_eq(frame_send(pair[0], "x", 1, NULL, 0), -EPIPE);
}

Test(frame, a_socket_that_does_not_block_says_again)
{
	int rc = 0;
	cr_assert_eq(fcntl(pair[0], F_SETFL, O_NONBLOCK), 0);
	cr_assert_eq(fcntl(pair[1], F_SETFL, O_NONBLOCK), 0);
	cr_assert_eq(receive(), -EAGAIN);
	cr_assert_eq(got_count, 99, "outputs are written on success only");
	for (int i = 0; rc == 0 && i < 10000; i++)
		rc = frame_send(pair[0], sent, 1000, NULL, 0);
	cr_assert_eq(rc, -EAGAIN);
}

Test(frame, what_is_no_socket_is_an_error)
{
	cr_assert_eq(frame_send(fds[0], "x", 1, NULL, 0), -ENOTSOCK);
	cr_assert_eq(frame_receive(-1, got, got_fds, &got_count), -EBADF);
}
