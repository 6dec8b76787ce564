/*
 * The connection: numbering, sending, and the leader and its followers. Owns the socket, one buffer to send and one to
 * receive.
 *
 * lock guards the list of calls that wait and who leads; it is never held across a system call that may block. sending
 * is held while one record is packed and sent: a record is sent whole or not at all, so the next one has to wait
 * anyway.
 */
#include "client/lib/wire.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/lib/fault.h"
#include "fsdp/fsdp.h"

#define WIRE_BROKEN_TEXT_MAX 512

struct wire {
	int fd;
	pthread_mutex_t lock;
	uint64_t last_request;
	struct wire_call *pending; /* in order of sending */
	bool receiving;            /* somebody leads */
	int broken;                /* 0, or the code that every call gets */
	char broken_text[WIRE_BROKEN_TEXT_MAX];
	pthread_mutex_t sending;
	unsigned char out[FRAME_BYTES_MAX]; /* under sending */
	unsigned char in[FRAME_BYTES_MAX];  /* the leader's */
};

static int wire_connect(const char *path, int *ret_fd)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t length = strlen(path);
	if (length == 0 || length >= sizeof(address.sun_path))
		return fault_set(FSDP_E_INVALID,
				 "fsdp_client_open: the socket's path has %zu bytes, a Unix socket's has 1 to %zu: %s",
				 length, sizeof(address.sun_path) - 1, path);
	memcpy(address.sun_path, path, length);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fault_set(-errno, "fsdp_client_open: cannot make a socket: %s", fsdp_strerror(-errno));
	int failed;
	do
		failed = connect(fd, (const struct sockaddr *)&address, sizeof(address));
	while (failed != 0 && errno == EINTR);
	if (failed != 0) {
		int error = -errno;
		close(fd);
		return fault_set(FSDP_E_UNREACHABLE,
				 "fsdp_client_open: no daemon answers at %s: %s; is fsdpd running here, and does "
				 "FSDP_SOCKET name its client socket?",
				 path, fsdp_strerror(error));
	}
	*ret_fd = fd;
	return 0;
}

int wire_open(const char *path, struct wire **ret_wire)
{
	int fd = -1;
	int code = wire_connect(path, &fd);
	if (code < 0)
		return code;
	struct wire *wire = calloc(1, sizeof(*wire));
	if (!wire) {
		close(fd);
		return fault_set(-ENOMEM, "fsdp_client_open: out of memory");
	}
	wire->fd = fd;
	pthread_mutex_init(&wire->lock, NULL);
	pthread_mutex_init(&wire->sending, NULL);
	*ret_wire = wire;
	return 0;
}

void wire_close(struct wire *wire, bool forked)
{
	if (!wire)
		return;
	/* Not shutdown: in a child the connection is still the parent's. */
	close(wire->fd);
	if (!forked) {
		assert(!wire->pending);
		pthread_mutex_destroy(&wire->lock);
		pthread_mutex_destroy(&wire->sending);
	}
	free(wire);
}

static void wire_unlink(struct wire *wire, struct wire_call *call)
{
	assert(call->pending);
	if (call->previous)
		call->previous->next = call->next;
	else
		wire->pending = call->next;
	if (call->next)
		call->next->previous = call->previous;
	call->pending = false;
}

/* With lock held. shutdown wakes the leader. */
static void wire_break_locked(struct wire *wire, int code, const char *text)
{
	if (wire->broken != 0)
		return;
	wire->broken = code;
	snprintf(wire->broken_text, sizeof(wire->broken_text), "%s", text);
	shutdown(wire->fd, SHUT_RDWR);
	for (struct wire_call *call = wire->pending; call; call = call->next)
		pthread_cond_signal(&call->wake);
}

void wire_break(struct wire *wire, int code, const char *format, ...)
{
	char text[WIRE_BROKEN_TEXT_MAX];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	pthread_mutex_lock(&wire->lock);
	wire_break_locked(wire, code, text);
	pthread_mutex_unlock(&wire->lock);
}

static int wire_send(struct wire *wire, const struct worker_message *request)
{
	pthread_mutex_lock(&wire->sending);
	long size = worker_message_write(request, wire->out);
	int code = size < 0 ? (int)size : 0;
	if (code == 0) {
		do
			code = frame_send(wire->fd, wire->out, (size_t)size, NULL, 0);
		while (code == -EINTR);
		if (code < 0)
			wire_break(wire, FSDP_E_UNREACHABLE,
				   "the connection to the daemon is lost (%s); close the client and open it again",
				   fsdp_strerror(code));
	}
	pthread_mutex_unlock(&wire->sending);
	return code;
}

int wire_begin(struct wire *wire, struct worker_message *request, struct wire_call *call)
{
	pthread_mutex_lock(&wire->lock);
	if (wire->broken != 0) {
		int code = wire->broken;
		pthread_mutex_unlock(&wire->lock);
		return code;
	}
	request->request = ++wire->last_request;
	call->op = request->op;
	call->request = request->request;
	call->pending = true;
	pthread_cond_init(&call->wake, NULL);
	struct wire_call **end = &wire->pending;
	call->previous = NULL;
	call->next = NULL;
	while (*end) {
		call->previous = *end;
		end = &(*end)->next;
	}
	*end = call;
	pthread_mutex_unlock(&wire->lock);

	int code = wire_send(wire, request);
	if (code == 0)
		return 0;
	pthread_mutex_lock(&wire->lock);
	if (call->pending)
		wire_unlink(wire, call);
	if (wire->broken != 0)
		code = wire->broken;
	pthread_mutex_unlock(&wire->lock);
	pthread_cond_destroy(&call->wake);
	return code;
}

static void wire_close_fds(const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* With lock held: the call that message answers, or NULL where nobody asked for that. */
static struct wire_call *wire_match(struct wire *wire, const struct worker_message *message)
{
	if (!message->answer || message->code > 0)
		return NULL;
	for (struct wire_call *call = wire->pending; call; call = call->next)
		if (call->request == message->request)
			return call->op == message->op ? call : NULL;
	return NULL;
}

/* The leader, without lock: receives one record and hands it over, or breaks the connection. */
static void wire_receive(struct wire *wire)
{
	int fds[FRAME_FDS_MAX];
	size_t fd_count = 0;
	long size;
	do
		size = frame_receive(wire->fd, wire->in, fds, &fd_count);
	while (size == -EINTR);
	if (size == -EMSGSIZE) {
		wire_break(wire, FSDP_E_PROTOCOL, "the daemon sent a message that is too long");
		return;
	}
	if (size <= 0) {
		wire_break(wire, FSDP_E_UNREACHABLE,
			   "the connection to the daemon is lost (%s); close the client and open it again",
			   size == 0 ? "it closed it, or is gone" : fsdp_strerror((int)size));
		return;
	}
	struct worker_message message;
	int code = worker_message_read(wire->in, (size_t)size, &message);
	if (code < 0) {
		wire_close_fds(fds, fd_count);
		wire_break(wire, code, "the daemon sent a message that cannot be read: %s", fsdp_strerror(code));
		return;
	}
	pthread_mutex_lock(&wire->lock);
	struct wire_call *call = wire_match(wire, &message);
	if (call) {
		wire_unlink(wire, call);
		call->answered = true;
		call->answer = message;
		memcpy(call->fds, fds, fd_count * sizeof(fds[0]));
		call->fd_count = fd_count;
		pthread_cond_signal(&call->wake);
	} else {
		wire_break_locked(wire, FSDP_E_PROTOCOL, "the daemon sent an answer that belongs to no request");
	}
	pthread_mutex_unlock(&wire->lock);
	if (!call) {
		wire_close_fds(fds, fd_count);
		worker_message_fini(&message);
	}
}

int wire_finish(struct wire *wire, struct wire_call *call)
{
	pthread_mutex_lock(&wire->lock);
	while (call->pending && wire->broken == 0) {
		if (wire->receiving) {
			call->waiting = true;
			pthread_cond_wait(&call->wake, &wire->lock);
			call->waiting = false;
			continue;
		}
		wire->receiving = true;
		pthread_mutex_unlock(&wire->lock);
		wire_receive(wire);
		pthread_mutex_lock(&wire->lock);
		wire->receiving = false;
	}
	if (call->pending)
		wire_unlink(wire, call);
	int code = call->answered ? call->answer.code : wire->broken;
	/* A call that was begun but is not being waited for would not hear the signal: its thread leads when it comes
	 * to wait. */
	struct wire_call *heir = wire->receiving ? NULL : wire->pending;
	while (heir && !heir->waiting)
		heir = heir->next;
	if (heir)
		pthread_cond_signal(&heir->wake);
	pthread_mutex_unlock(&wire->lock);
	pthread_cond_destroy(&call->wake);
	return code;
}

void wire_call_fini(struct wire_call *call)
{
	assert(!call->pending);
	if (!call->answered)
		return;
	wire_close_fds(call->fds, call->fd_count);
	worker_message_fini(&call->answer);
	call->answered = false;
}

int wire_fault(struct wire *wire, const struct wire_call *call, int code, const char *what, const char *unit)
{
	char text[WIRE_BROKEN_TEXT_MAX];
	if (call->answered && call->answer.text[0]) /* it names the unit itself */
		return fault_set(code, "%s: %s", what, call->answer.text);
	pthread_mutex_lock(&wire->lock);
	bool broken = !call->answered && wire->broken != 0;
	snprintf(text, sizeof(text), "%s", broken ? wire->broken_text : fsdp_strerror(code));
	pthread_mutex_unlock(&wire->lock);
	if (unit)
		return fault_set(code, "%s: unit \"%s\": %s", what, unit, text);
	return fault_set(code, "%s: %s", what, text);
}
