/*
 * Unpacking within a budget. The generated code takes memory as a message tells it to: two bytes on the wire may become
 * a hundred here. This bounds what one message may take, whatever it says.
 */
#ifndef FSDP_PROTO_WIRE_BUDGET_H
#define FSDP_PROTO_WIRE_BUDGET_H

#include <stddef.h>

#include <protobuf-c/protobuf-c.h>

/* Unpacks; free with wire_budget_free. FSDP_E_PROTOCOL where it is malformed or wants more than `budget` bytes,
 * -ENOMEM. */
int wire_budget_unpack(const ProtobufCMessageDescriptor *descriptor, const void *data, size_t size, size_t budget,
		       void *ret_message);
void wire_budget_free(void *message); /* NULL is fine */

#endif
