/*
 * Judges a HELLO by what this node knows of itself, and words the refusals. It decides nothing that needs the state of
 * a link: that is link.c. It answers nothing and logs nothing.
 */
#include "daemon/transport/greeting.h"

#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "fsdp/error.h"

uint64_t greeting_cluster_hash(const char *cluster)
{
	return XXH3_64bits(cluster, strlen(cluster));
}

enum greeting_fault greeting_check(const struct greeting_self *self, const struct peer_message *hello)
{
	if (hello->protocol < PEER_PROTOCOL_MIN || hello->protocol > PEER_PROTOCOL)
		return GREETING_PROTOCOL;
	if (strcmp(hello->name, self->cluster) != 0)
		return GREETING_CLUSTER;
	if (hello->cluster != self->cluster_hash)
		return GREETING_MALFORMED;
	if (hello->world_size != self->world_size)
		return GREETING_WORLD_SIZE;
	if (hello->source >= self->world_size || hello->link == 0)
		return GREETING_MALFORMED;
	if (hello->source == self->rank)
		return GREETING_OWN_RANK;
	return GREETING_FITS;
}

int greeting_explain(const struct greeting_self *self, const struct peer_message *hello, enum greeting_fault fault,
		     char *ret_text, char *ret_their_text)
{
	const size_t room = PEER_TEXT_MAX + 1;

	switch (fault) {
	case GREETING_PROTOCOL:
		snprintf(ret_text, room, "protocol %d to %d here, %u there", PEER_PROTOCOL_MIN, PEER_PROTOCOL,
			 hello->protocol);
		snprintf(ret_their_text, room, "protocol %u here, %d to %d there", hello->protocol, PEER_PROTOCOL_MIN,
			 PEER_PROTOCOL);
		return FSDP_E_PROTOCOL;
	case GREETING_CLUSTER:
		snprintf(ret_text, room, "cluster \"%s\" here, \"%s\" there", self->cluster, hello->name);
		snprintf(ret_their_text, room, "cluster \"%s\" here, \"%s\" there", hello->name, self->cluster);
		return FSDP_E_MISMATCH;
	case GREETING_WORLD_SIZE:
		snprintf(ret_text, room, "world size %u here, %u there", self->world_size, hello->world_size);
		snprintf(ret_their_text, room, "world size %u here, %u there", hello->world_size, self->world_size);
		return FSDP_E_MISMATCH;
	case GREETING_OWN_RANK:
		if (hello->incarnation == self->incarnation)
			snprintf(ret_text, room,
				 "rank %u here, and it called itself: an endpoint of another rank leads here",
				 self->rank);
		else
			snprintf(ret_text, room, "rank %u here, rank %u there too", self->rank, hello->source);
		snprintf(ret_their_text, room, "%s", ret_text);
		return FSDP_E_MISMATCH;
	case GREETING_FITS:
	case GREETING_JUDGED:
	case GREETING_MALFORMED:
		break;
	}
	ret_text[0] = ret_their_text[0] = '\0';
	return FSDP_E_PROTOCOL;
}

bool greeting_is_news(struct greeting_told *told, enum greeting_fault fault, uint32_t rank)
{
	for (size_t i = 0; i < told->count; i++)
		if (told->entries[i].fault == fault && told->entries[i].rank == rank)
			return false;
	if (told->count == GREETING_TOLD_MAX)
		return false;
	told->entries[told->count].fault = fault;
	told->entries[told->count].rank = rank;
	told->count++;
	return true;
}

void greeting_forget(struct greeting_told *told, uint32_t rank)
{
	for (size_t i = told->count; i-- > 0;)
		if (told->entries[i].rank == rank)
			told->entries[i] = told->entries[--told->count];
}
