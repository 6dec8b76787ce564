/*
 * How a HELLO is looked at before anybody is asked: does it come from our cluster, of our size, from a rank that is not
 * ours? What does not fit has a kind, a code, and a sentence that names both sides. Also remembers which refusals were
 * told already, in a table of fixed size: whoever floods us with HELLOs fills neither memory nor log. Pure.
 */
#ifndef FSDPD_TRANSPORT_GREETING_H
#define FSDPD_TRANSPORT_GREETING_H

#include "proto/peer_message.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum greeting_fault {
	GREETING_FITS = 0,
	GREETING_PROTOCOL,
	GREETING_CLUSTER,
	GREETING_WORLD_SIZE,
	GREETING_OWN_RANK,
	GREETING_JUDGED,   /* it fits, and the owner does not want it */
	GREETING_MALFORMED /* no peer of ours would say this: not answered at all */
};

struct greeting_self {
	char cluster[PEER_NAME_MAX + 1];
	uint64_t cluster_hash;
	uint64_t incarnation;
	uint32_t rank, world_size;
};

#define GREETING_TOLD_MAX 64

struct greeting_told { /* zeroes: nothing told yet */
	struct {
		enum greeting_fault fault;
		uint32_t rank;
	} entries[GREETING_TOLD_MAX];
	size_t count;
};

uint64_t greeting_cluster_hash(const char *cluster);

enum greeting_fault greeting_check(const struct greeting_self *self, const struct peer_message *hello);

/* The code and the sentence for a fault up to GREETING_OWN_RANK, from our point of view (ours "here") and from that of
 * whoever said hello (ours "there"). Each text has room for PEER_TEXT_MAX + 1 bytes. */
int greeting_explain(const struct greeting_self *self, const struct peer_message *hello, enum greeting_fault fault,
		     char *ret_text, char *ret_their_text);

/* Whether this kind of refusal of this rank is news. When the table is full nothing is news any more. */
bool greeting_is_news(struct greeting_told *told, enum greeting_fault fault, uint32_t rank);
/* The rank is welcome again: a refusal from now on is news. */
void greeting_forget(struct greeting_told *told, uint32_t rank);

#endif
