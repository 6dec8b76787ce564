/*
 * Sealing, this rank's part: asks the coordinator, shows it the whole manifest where it wants to, and takes the answer.
 * The loop thread runs it. A model in MODEL_SEALING always has a worker.
 */
#include "daemon/group/model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"

static void ask(struct model *model)
{
	struct peer_message message;

	group_message_init(&message, PEER_MANIFEST);
	group_message_name(&message, model->name);
	group_message_text(&message, model->seal_text ? model->seal_text : "");
	message.version = model->seal_number;
	message.sum = manifest_hash(model->manifest);
	message.code = model->seal_code;
	group_send(model->group, GROUP_COORDINATOR, &message);
}

void seal_start(struct worker *worker, int code, const char *text)
{
	struct group *group = worker->group;
	struct model *model;
	int made = model_new(group, worker->manifest, code == 0 ? worker->plan : NULL, &model);

	assert(worker->state == WORKER_SEALING);
	if (made < 0) {
		worker_refuse(worker, made, "no memory for the model's tables");
		return;
	}
	model->worker = worker;
	worker->model = model;
	model->seal_number = ++group->seals_numbered;
	model->seal_code = code;
	model->seal_text = group_duplicate(text);
	if (group->generation != 0)
		ask(model);
}

void seal_repeat(struct model *model)
{
	assert(model->state == MODEL_SEALING);
	ask(model);
}

/* The others are to hear the same when it is withdrawn. */
void seal_expired(struct model *model, const char *text)
{
	assert(model->state == MODEL_SEALING);
	free(model->seal_text);
	model->seal_text = group_duplicate(text);
	model->seal_code = FSDP_E_TIMEOUT;
}

void seal_withdraw(struct model *model)
{
	struct group *group = model->group;
	struct peer_message message;

	assert(model->state == MODEL_SEALING && !model->worker);
	group_message_init(&message, PEER_WITHDRAW);
	group_message_name(&message, model->name);
	message.version = model->seal_number;
	message.code = model->seal_code;
	group_message_text(&message, model->seal_text ? model->seal_text : "");
	model_free(model);
	if (group->generation != 0)
		group_send(group, GROUP_COORDINATOR, &message);
}

void seal_fail(struct model *model, int code, const char *text)
{
	assert(model->state == MODEL_SEALING && model->worker);
	group_notice(model->group, NOTICE_MODEL_REFUSED, model, NULL, -1, "%s", text);
	worker_refuse(model->worker, code, text);
}

static struct model *sealing(const struct group *group, const struct peer_message *message)
{
	struct model *model = model_named(group, message->name);
	return model && model->state == MODEL_SEALING && model->seal_number == message->version ? model : NULL;
}

/* The whole manifest from message->offset on, as far as the queue takes it; the coordinator asks again for the rest. */
void seal_hear_detail_wanted(struct group *group, uint32_t rank, const struct peer_message *message,
			     struct buffer *payload)
{
	struct model *model = sealing(group, message);
	struct peer_message detail;
	(void)payload;

	if (!model || rank == group->config.rank)
		return;
	if (!model->detail) {
		void *data;
		size_t size;
		if (manifest_write(model->manifest, &data, &size) < 0)
			return;
		if (buffer_new(data, size, free, data, &model->detail) < 0) {
			free(data);
			return;
		}
	}
	size_t size = buffer_size(model->detail);
	for (uint64_t offset = message->offset; offset < size;) {
		size_t piece = size - offset < PEER_PAYLOAD_MAX ? (size_t)(size - offset) : PEER_PAYLOAD_MAX;
		group_message_init(&detail, PEER_DETAIL);
		group_message_name(&detail, model->name);
		detail.version = model->seal_number;
		detail.offset = offset;
		detail.length = size;
		if (group_send_piece(
			    group, rank, &detail,
			    (struct transport_piece){ .buffer = model->detail, .offset = offset, .size = piece }) < 0)
			return;
		offset += piece;
	}
}

void seal_hear_sealed(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct model *model = sealing(group, message);
	(void)payload;
	(void)rank;

	if (message->model == 0 || model_find(group, message->model) || drop_is_remembered(group, message->model))
		return;
	if (!model) { /* we gave that number up: the others cannot have it without us */
		char why[CALL_TEXT_MAX];
		snprintf(why, sizeof(why), "rank %" PRIu32 " gave up sealing it", group->config.rank);
		drop_ask(group, message->model, message->name, why);
		return;
	}
	if (!model->plan || message->sum != manifest_hash(model->manifest))
		return;
	model_sealed(model, message->model);
	worker_attached(model->worker, false);
}

void seal_hear_unsealed(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct model *model = sealing(group, message);
	(void)payload;
	(void)rank;

	if (model)
		seal_fail(model, message->code < 0 ? message->code : FSDP_E_MISMATCH, message->text);
}
