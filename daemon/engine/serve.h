/*
 * The owner's side of reads: what of our shards goes out to whom. One state a (reader, read number); its chunks are
 * references to the shard itself, so a state outlives its end for as long as the transport holds one.
 */
#ifndef FSDPD_ENGINE_SERVE_H
#define FSDPD_ENGINE_SERVE_H

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct model;
struct peer_message;
struct unit;

void serve_read(struct model *model, uint32_t reader, const struct peer_message *message);

void serve_version_changed(struct unit *unit);           /* answers the reads that were held */
void serve_forget(struct model *model, uint32_t reader); /* a link between us broke: the reader will ask again */
void serve_resume(struct model *model);                  /* a queue may have room again */
void serve_drop(struct model *model);

/* Initial values, which are read as version 0 from a slot of ours: it is here now; whether somebody still reads it. */
void serve_offered(struct unit *unit);
bool serve_is_offering(const struct unit *unit);

bool serve_is_reading(const struct unit *unit); /* somebody reads, or may still read, what the shard holds now */
/* Ends those reads: their readers hear "stale", and what is still in the transport's queues is waited for no longer. */
void serve_give_up(struct unit *unit);

#endif
