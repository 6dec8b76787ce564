/*
 * The connection to the daemon: requests out, answers in, any number of calls at once. There is no thread behind it. Of
 * the threads that wait, one (the leader) receives and hands every answer to whom it belongs; when its own is there it
 * leaves, and another one leads. So a call that waits holds back no other.
 *
 * Once broken it stays broken, and every call gets the reason. All functions may be called by any thread.
 */
#ifndef FSDP_CLIENT_WIRE_H
#define FSDP_CLIENT_WIRE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"
#include "proto/worker_message.h"

struct wire;

/* One request that is under way, on the stack of who waits for it. Begins zeroed; ends with wire_call_fini, whatever
 * happened. */
struct wire_call {
	bool answered;                /* answer and fds are the daemon's */
	struct worker_message answer; /* its code may be negative */
	int fds[FRAME_FDS_MAX];       /* descriptors that came with it; -1 where somebody took it away */
	size_t fd_count;
	/* private to wire.c */
	enum worker_op op;
	uint64_t request;
	bool pending, waiting;
	pthread_cond_t wake;
	struct wire_call *previous, *next;
};

#define WIRE_CALL_AUTO __attribute__((cleanup(wire_call_fini))) struct wire_call

/* Connects. 0, -ENOMEM, FSDP_E_INVALID, FSDP_E_UNREACHABLE; the fault is set. */
int wire_open(const char *path, struct wire **ret_wire);
/* No call may be under way. forked: this is a child of the process that opened it, so locks are left as they are. */
void wire_close(struct wire *wire, bool forked);

/* Sends request, whose number it fills in. 0 or a negative code, then the call has ended. */
int wire_begin(struct wire *wire, struct worker_message *request, struct wire_call *call);
/* Waits for the answer to a call that was begun. Returns the answer's code, or why there is none. */
int wire_finish(struct wire *wire, struct wire_call *call);
void wire_call_fini(struct wire_call *call);

/* Ends the connection: the daemon said what makes no sense. The first reason stays. */
void wire_break(struct wire *wire, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Sets the fault of a call that failed with code: the daemon's own words where it had some, else why the connection is
 * lost. what is the public function, unit may be NULL. Returns code. */
int wire_fault(struct wire *wire, const struct wire_call *call, int code, const char *what, const char *unit);

#endif
