/*
 * What a source sent of a step or attempt that this rank has not reached: kept in order until it has. PUSHes are
 * bounded by credit, CLOSEs by a number, beyond which they are dropped, because they are repeated.
 */
#ifndef FSDPD_ENGINE_HELD_H
#define FSDPD_ENGINE_HELD_H

#include "daemon/runtime/buffer.h"

struct model;
struct peer_message;
struct source;

void held_init(struct source *source);
void held_push(struct source *source, const struct peer_message *message, struct buffer *payload);
void held_close(struct source *source, const struct peer_message *message);
void held_replay(struct model *model);          /* takes what is of the present step and attempt, drops what is older */
void held_forget_pushes(struct source *source); /* they will be sent again */
void held_drop(struct source *source);

#endif
