/* Connects, sends, and gathers the parts of the answer. */
#include "client/ctl/ask.h"

#include "fsdp/error.h"
#include "proto/frame.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(address.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		int cause = errno;
		close(fd);
		errno = cause;
		return -1;
	}
	return fd;
}

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Appends count elements of size bytes to a list; takes nothing. */
static int append(void **list, size_t *length, const void *more, size_t count, size_t size)
{
	if (count == 0)
		return 0;
	void *grown = realloc(*list, (*length + count) * size);
	if (!grown)
		return -ENOMEM;
	memcpy((char *)grown + *length * size, more, count * size);
	*list = grown;
	*length += count;
	return 0;
}

static int add_part(struct control_message *answer, const struct control_message *part)
{
	answer->code = part->code;
	memcpy(answer->text, part->text, sizeof(answer->text));
	if (part->has_status) {
		answer->has_status = true;
		answer->status = part->status;
	}
#define APPEND(list, count) append((void **)&answer->list, &answer->count, part->list, part->count, sizeof(*part->list))
	int code = APPEND(peers, peer_count);
	if (code == 0)
		code = APPEND(models, model_count);
	if (code == 0)
		code = APPEND(units, unit_count);
	if (code == 0)
		code = APPEND(workers, worker_count);
	if (code == 0)
		code = APPEND(waits, wait_count);
#undef APPEND
	return code;
}

/* One part. 1: more follows; 0: the last. */
static int receive_part(int fd, void *record, int64_t ends_ms, struct control_message *answer)
{
	int64_t left = ends_ms - now_ms();
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	if (left <= 0 || poll(&wait, 1, (int)left) == 0) {
		errno = ETIMEDOUT;
		return FSDP_E_UNREACHABLE;
	}
	int fds[FRAME_FDS_MAX];
	size_t fd_count = 0;
	long size = frame_receive(fd, record, fds, &fd_count);
	if (size == -EAGAIN)
		return 1;
	for (size_t i = 0; size >= 0 && i < fd_count; i++)
		close(fds[i]);
	if (size <= 0) {
		errno = size == 0 ? ECONNRESET : (int)-size;
		return FSDP_E_UNREACHABLE;
	}
	struct control_message part;
	int code = control_message_read(record, (size_t)size, &part);
	if (code < 0)
		return code;
	code = add_part(answer, &part);
	int more = part.more;
	control_message_fini(&part);
	return code < 0 ? code : more;
}

int ask_daemon(const char *path, const struct control_message *question, int timeout_ms,
	       struct control_message *ret_answer)
{
	int64_t ends_ms = now_ms() + timeout_ms;
	int fd = connect_to(path);
	if (fd < 0)
		return FSDP_E_UNREACHABLE;
	struct control_message answer = { .answer = true };
	void *record = malloc(FRAME_BYTES_MAX);
	int code = record ? 0 : -ENOMEM;
	if (code == 0) {
		long size = control_message_write(question, record);
		code = size < 0 ? (int)size : frame_send(fd, record, (size_t)size, NULL, 0);
		if (size >= 0 && code < 0) {
			errno = -code;
			code = FSDP_E_UNREACHABLE;
		}
	}
	int more = code == 0;
	for (unsigned parts = 0; more > 0; parts++)
		more = parts < ASK_PARTS_MAX ? receive_part(fd, record, ends_ms, &answer) : FSDP_E_PROTOCOL;
	int cause = errno;
	free(record);
	close(fd);
	errno = cause;
	if (code < 0 || more < 0) {
		ask_free(&answer);
		return code < 0 ? code : more;
	}
	*ret_answer = answer;
	return 0;
}

void ask_free(struct control_message *answer)
{
	free(answer->peers);
	free(answer->models);
	free(answer->units);
	free(answer->workers);
	free(answer->waits);
	memset(answer, 0, sizeof(*answer));
}
