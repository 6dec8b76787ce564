/*
 * The control socket: an operator's questions and commands. Long answers go in parts, each made when the last one was
 * taken, so that a slow reader costs nothing. Private to this folder; the loop owns it.
 */
#ifndef FSDPD_SERVE_CONTROL_H
#define FSDPD_SERVE_CONTROL_H

#include <sys/queue.h>

#define CONTROLS_MAX 32u /* connections of operators */

struct serve;
struct control;
TAILQ_HEAD(control_list, control);

int control_new(struct serve *serve, int fd); /* takes fd on success */
void control_free_all(struct serve *serve);

#endif
