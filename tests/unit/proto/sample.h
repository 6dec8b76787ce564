/*
 * One message of each conversation with every field set, each to another value, and with two or three rows in every
 * list: for the tests of the codecs and the seeds of the fuzz targets. The lists are static; do not finish it.
 */
#ifndef FSDP_TESTS_PROTO_SAMPLE_H
#define FSDP_TESTS_PROTO_SAMPLE_H

#include "proto/control_message.h"
#include "proto/peer_message.h"
#include "proto/worker_message.h"

/* Every op there is, and 0 at the end. */
extern const enum peer_op sample_peer_ops[];
#define SAMPLE_WORKER_OP_LAST WORKER_OP_LAST
#define SAMPLE_CONTROL_OP_LAST CONTROL_STEP_ABORT

struct peer_message sample_peer(enum peer_op op);
struct worker_message sample_worker(enum worker_op op);
struct control_message sample_control(enum control_op op);

/* The hot messages as the engine sends them: only what they need. */
struct peer_message sample_peer_chunk(void);

#endif
