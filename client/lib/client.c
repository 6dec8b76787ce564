/*
 * The connection's handle: opening, closing, who this node is, and the check that every call begins with. Owns the wire
 * and the list of models. Any thread; close needs that no other call is under way.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/lib/fault.h"
#include "client/lib/model.h"

#define CLIENT_DEFAULT_SOCKET "/run/fsdpd/client.sock"

int client_check(const struct fsdp_client *client, const char *what)
{
	if (!client)
		return fault_set(FSDP_E_INVALID, "%s: the handle is NULL", what);
	/* Asked every time: a handler of pthread_atfork would not see every way to make a process. */
	if (client->pid != getpid())
		return fault_set(
			FSDP_E_FORKED,
			"%s: the handle belongs to process %ld, this is its child %ld; close the client here and "
			"open one of its own",
			what, (long)client->pid, (long)getpid());
	return 0;
}

static int client_hello(struct fsdp_client *client)
{
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = { .op = WORKER_HELLO, .protocol = WORKER_PROTOCOL };
	int code = wire_begin(client->wire, &request, &call);
	if (code == 0)
		code = wire_finish(client->wire, &call);
	if (code < 0)
		return wire_fault(client->wire, &call, code, "fsdp_client_open", NULL);
	if (call.answer.rank >= call.answer.world_size)
		return fault_set(FSDP_E_PROTOCOL, "fsdp_client_open: the daemon says that it is rank %u of %u",
				 call.answer.rank, call.answer.world_size);
	client->rank = call.answer.rank;
	client->world_size = call.answer.world_size;
	return 0;
}

int fsdp_client_open(const char *socket_path, struct fsdp_client **ret_client)
{
	if (!ret_client)
		return fault_set(FSDP_E_INVALID, "fsdp_client_open: ret_client is NULL");
	if (!socket_path)
		socket_path = getenv("FSDP_SOCKET");
	if (!socket_path || !*socket_path)
		socket_path = CLIENT_DEFAULT_SOCKET;
	struct fsdp_client *client = calloc(1, sizeof(*client));
	if (!client)
		return fault_set(-ENOMEM, "fsdp_client_open: out of memory");
	client->pid = getpid();
	pthread_mutex_init(&client->lock, NULL);
	int code = wire_open(socket_path, &client->wire);
	if (code == 0)
		code = client_hello(client);
	if (code < 0) {
		fsdp_client_close(client);
		return code;
	}
	*ret_client = client;
	return 0;
}

int fsdp_client_close(struct fsdp_client *client)
{
	if (!client)
		return 0;
	bool forked = client->pid != getpid();
	while (client->models)
		model_free(client->models, forked);
	wire_close(client->wire, forked);
	if (!forked)
		pthread_mutex_destroy(&client->lock);
	free(client);
	return 0;
}

int fsdp_client_group(struct fsdp_client *client, struct fsdp_group *ret_group)
{
	int code = client_check(client, "fsdp_client_group");
	if (code < 0)
		return code;
	if (!ret_group)
		return fault_set(FSDP_E_INVALID, "fsdp_client_group: ret_group is NULL");
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = { .op = WORKER_GROUP };
	code = wire_begin(client->wire, &request, &call);
	if (code == 0)
		code = wire_finish(client->wire, &call);
	if (code < 0)
		return wire_fault(client->wire, &call, code, "fsdp_client_group", NULL);
	*ret_group = (struct fsdp_group){
		.rank = client->rank,
		.world_size = client->world_size,
		.generation = call.answer.generation,
		.bytes_in = call.answer.bytes_in,
		.bytes_out = call.answer.bytes_out,
	};
	return 0;
}
