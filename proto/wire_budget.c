/*
 * An allocator for the generated code that counts and refuses. It lives as long as one unpacking; what it gave is freed
 * as usual. Any thread. It does not look into messages: limits on lists and texts are the codecs'.
 */
#include "proto/wire_budget.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"

/* What malloc itself takes for a block, about: without it many empty messages would cost more than they are charged. */
#define BLOCK_BYTES 16

struct budget {
	size_t left;
	bool no_memory; /* the system refused, not we */
};

static void *budget_alloc(void *data, size_t size)
{
	struct budget *budget = data;
	void *block;

	if (size > budget->left || budget->left - size < BLOCK_BYTES)
		return NULL;
	block = malloc(size ? size : 1);
	if (!block) {
		budget->no_memory = true;
		return NULL;
	}
	budget->left -= size + BLOCK_BYTES;
	return block;
}

/* Nothing is given back to the budget: it bounds the work of one message too. */
static void budget_free(void *data, void *block)
{
	(void)data;
	free(block);
}

int wire_budget_unpack(const ProtobufCMessageDescriptor *descriptor, const void *data, size_t size, size_t budget,
		       void *ret_message)
{
	struct budget state = { .left = budget };
	ProtobufCAllocator allocator = { .alloc = budget_alloc, .free = budget_free, .allocator_data = &state };
	static const uint8_t nothing[1];
	ProtobufCMessage *message;

	message = protobuf_c_message_unpack(descriptor, &allocator, size, size ? data : nothing);
	if (!message)
		return state.no_memory ? -ENOMEM : FSDP_E_PROTOCOL;
	memcpy(ret_message, &message, sizeof message);
	return 0;
}

void wire_budget_free(void *message)
{
	static ProtobufCAllocator allocator = { .alloc = budget_alloc, .free = budget_free };

	if (message)
		protobuf_c_message_free_unpacked(message, &allocator);
}
