/*
 * One question to a daemon over its control socket, and the whole of its answer. Waits as long as it is told to, and no
 * longer.
 */
#ifndef FSDP_CTL_ASK_H
#define FSDP_CTL_ASK_H

#include "proto/control_message.h"

#define ASK_PARTS_MAX 4096 /* messages of one answer */

/* Adds up the parts of an answer. 0: *ret_answer is to be freed with ask_free. FSDP_E_UNREACHABLE with errno: nobody
 * there, or the deadline passed; FSDP_E_PROTOCOL; -ENOMEM. A refusal by the daemon is an answer with a code. */
int ask_daemon(const char *path, const struct control_message *question, int timeout_ms,
	       struct control_message *ret_answer);
void ask_free(struct control_message *answer);

#endif
