/*
 * Seals. What takes long (hashing the manifest, computing the plan, touching every page of six arenas) is a job in
 * exec; the loop goes on meanwhile, and the worker may go away. Then the group agrees with the other ranks, and the
 * worker gets descriptors of the arenas, read-only where it has nothing to write.
 *
 * A rank that cannot seal (no memory, a dtype that is not supported) still goes to the group, which tells every rank
 * why; where the manifests differ, the difference is the answer.
 */
#include "daemon/serve/seal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/serve/serve_state.h"
#include "daemon/serve/text.h"
#include "daemon/store/pool.h"
#include "fsdp/error.h"

#define SEAL_FDS 5
#define SEAL_GATHER_UNITS 3 /* one in use, one that comes, one that goes */
#define SEAL_GRADIENT_UNITS 2

struct seal {
	struct job job; /* first */
	struct serve *serve;
	struct request *request; /* NULL: gone */
	struct opened *opened;   /* goes with it */
	struct manifest *manifest;
	struct plan *plan;
	bool sealed;     /* the manifest is: once is enough */
	bool wants_plan; /* the job makes one */
	bool in_exec;
	bool attaching; /* within group_attach */
	bool answered;  /* within it */
	int code;       /* why this rank cannot */
	char text[CALL_TEXT_MAX + 1];
	struct worker_message answer; /* what the group said */
};

static void seal_free(struct seal *seal)
{
	plan_unref(seal->plan);
	manifest_unref(seal->manifest);
	free(seal);
}

void seal_abandon(struct seal *seal)
{
	seal->request = NULL;
	seal->opened = NULL;
	if (!seal->in_exec)
		seal_free(seal);
}

/* ---- In exec ---- */

int seal_pool_bytes(const struct plan_sizes *sizes, uint64_t budget, unsigned largest, uint64_t *ret_bytes)
{
	uint64_t several, whole = sizes->all_units < SEAL_POOL_AUTO_MAX ? sizes->all_units : SEAL_POOL_AUTO_MAX;

	if (budget > 0) {
		if (budget < sizes->largest_unit)
			return FSDP_E_BUDGET;
		*ret_bytes = budget / POOL_ALIGN * POOL_ALIGN;
		return 0;
	}
	if (__builtin_mul_overflow(sizes->largest_unit, (uint64_t)largest, &several) || several > INT64_MAX)
		return FSDP_E_OVERFLOW;
	*ret_bytes = several > whole ? several : whole;
	return 0;
}

/* The first thing that is not f32, for people. */
static void describe_dtype(struct seal *seal)
{
	const struct manifest_options *options = manifest_get_options(seal->manifest);
	const char *name = manifest_name(seal->manifest);

	if ((options->gather_dtype && options->gather_dtype != FSDP_F32) ||
	    (options->reduce_dtype && options->reduce_dtype != FSDP_F32)) {
		text_print(seal->text, sizeof(seal->text),
			   "model \"%s\": its gather or reduce dtype is not f32, the only one that this "
			   "version supports",
			   name);
		return;
	}
	for (uint32_t r = 0; r < manifest_unit_count(seal->manifest); r++) {
		const struct manifest_unit *unit = manifest_unit(seal->manifest, manifest_canonical(seal->manifest, r));

		if ((unit->gather_dtype && unit->gather_dtype != FSDP_F32) ||
		    (unit->reduce_dtype && unit->reduce_dtype != FSDP_F32)) {
			text_print(seal->text, sizeof(seal->text),
				   "model \"%s\", unit \"%s\": its gather or reduce dtype is not f32, the "
				   "only one that this version supports",
				   name, unit->name);
			return;
		}
		for (uint32_t p = 0; p < unit->param_count; p++) {
			char described[128];

			if (unit->params[p].dtype == FSDP_F32)
				continue;
			manifest_param_describe(&unit->params[p], described, sizeof(described));
			text_print(seal->text, sizeof(seal->text),
				   "model \"%s\", unit \"%s\", entry %u: %s is %s: f32 is the only dtype "
				   "that this version supports",
				   name, unit->name, p, unit->params[p].name, described);
			return;
		}
	}
}

/* The largest unit does not fit a pool that the configuration made too small. */
static int refuse_budget(struct seal *seal, const struct plan_sizes *sizes, const char *key, uint64_t budget)
{
	const char *largest = "";

	for (uint32_t i = 0; i < plan_unit_count(seal->plan); i++) {
		if (plan_unit(seal->plan, i)->layout.full_bytes + POOL_ALIGN > sizes->largest_unit)
			largest = manifest_unit(seal->manifest, i)->name;
	}
	text_print(seal->text, sizeof(seal->text),
		   "model \"%s\": its largest unit, \"%s\", needs %" PRIu64 " bytes, but [memory] %s is "
		   "%" PRIu64 " bytes",
		   manifest_name(seal->manifest), largest, sizes->largest_unit, key, budget);
	return FSDP_E_BUDGET;
}

static int allocate(struct seal *seal)
{
	const struct serve_config *config = &seal->serve->config;
	struct plan_sizes sizes = plan_get_sizes(seal->plan);
	uint64_t gathers = 0, grads = 0;
	int code = seal_pool_bytes(&sizes, config->gather_bytes, SEAL_GATHER_UNITS, &gathers);

	if (code == FSDP_E_BUDGET)
		return refuse_budget(seal, &sizes, "gather-budget", config->gather_bytes);
	if (code == 0)
		code = seal_pool_bytes(&sizes, config->gradient_bytes, SEAL_GRADIENT_UNITS, &grads);
	if (code == FSDP_E_BUDGET)
		return refuse_budget(seal, &sizes, "gradient-budget", config->gradient_bytes);
	if (code == 0)
		code = plan_allocate(seal->plan, gathers, grads, false);
	if (code < 0)
		text_print(seal->text, sizeof(seal->text),
			   "model \"%s\": cannot take the memory that it needs: three times %" PRIu64
			   " bytes for shards, %" PRIu64 " for moments, %" PRIu64 " and %" PRIu64 " for the pools: %s",
			   manifest_name(seal->manifest), sizes.shards, sizes.moments, gathers, grads,
			   code > -1000 ? strerror(-code) : "the size exceeds its limit");
	return code;
}

static int make_plan(struct seal *seal)
{
	const struct serve_config *config = &seal->serve->config;
	int code = plan_new(seal->manifest, config->rank, config->world_size, &seal->plan);

	if (code == FSDP_E_DTYPE)
		describe_dtype(seal);
	else if (code < 0)
		text_print(seal->text, sizeof(seal->text), "model \"%s\": %s", manifest_name(seal->manifest),
			   code == -ENOMEM ? "out of memory" : "its sizes exceed their limit");
	if (code == 0)
		code = allocate(seal);
	if (code < 0) {
		plan_unref(seal->plan);
		seal->plan = NULL;
	}
	return code;
}

static void run(struct job *job)
{
	struct seal *seal = (struct seal *)job;

	if (!seal->sealed) {
		seal->code = manifest_seal(seal->manifest);
		if (seal->code < 0) {
			text_copy(seal->text, sizeof(seal->text), manifest_error(seal->manifest));
			return;
		}
		seal->sealed = true;
	}
	if (seal->wants_plan)
		seal->code = make_plan(seal);
}

/* ---- In the loop ---- */

/* Over: the model is as open as it was, and may be sealed again. */
static void fail(struct seal *seal, int code, const char *text)
{
	struct request *request = seal->request;

	seal->opened->state = seal->sealed ? OPENED_UNSEALED : OPENED_REGISTERING;
	seal->opened->seal = NULL;
	if (seal->opened->worker) {
		seal->opened->retiring = true;
		serve_retire_soon(seal->serve);
	}
	request_fail(request, code, "%s", text);
	seal_free(seal);
}

/* Descriptors of the arenas that have bytes, in the order of the message. -errno: none are open. */
static int open_arenas(const struct plan_memory *memory, int fds[SEAL_FDS], size_t *ret_count)
{
	const struct {
		const struct arena *arena;
		bool read_only;
	} wanted[SEAL_FDS] = {
		{ &memory->masters, true }, { &memory->gradients, true }, { &memory->staging, false },
		{ &memory->gathers, true }, { &memory->grads, false },
	};
	size_t count = 0;
	int code = 0;

	for (size_t i = 0; i < SEAL_FDS && code == 0; i++) {
		if (wanted[i].arena->bytes == 0)
			continue;
		if (wanted[i].read_only) {
			code = arena_open_read_only(wanted[i].arena, &fds[count]);
		} else {
			fds[count] = fcntl(wanted[i].arena->fd, F_DUPFD_CLOEXEC, 3);
			code = fds[count] < 0 ? -errno : 0;
		}
		if (code == 0)
			count++;
	}
	if (code < 0) {
		while (count > 0)
			close(fds[--count]);
		return code;
	}
	*ret_count = count;
	return 0;
}

/* Of what the last committed step left. */
static uint64_t state_bytes(const struct worker *worker)
{
	struct buffer *state;
	uint64_t step;
	char text[CALL_TEXT_MAX];

	return worker_state(worker, &state, &step, text) == 0 && state ? buffer_size(state) : 0;
}

/* The group has answered, and the worker is known. */
static void finish(struct seal *seal)
{
	struct request *request = seal->request;
	struct opened *opened = seal->opened;
	const struct plan_memory *memory;
	int fds[SEAL_FDS];
	size_t count = 0;
	int code = seal->answer.code;

	if (code < 0) {
		fail(seal, code, seal->answer.text);
		return;
	}
	memory = plan_memory(worker_plan(opened->worker));
	code = open_arenas(memory, fds, &count);
	if (code < 0) {
		text_print(seal->text, sizeof(seal->text),
			   "the model is sealed, but its memory cannot be handed over: %s", strerror(-code));
		fail(seal, code, seal->text);
		return;
	}
	seal->answer.shard_bytes = memory->masters.bytes;
	seal->answer.gather_bytes = memory->gathers.bytes;
	seal->answer.grad_bytes = memory->grads.bytes;
	seal->answer.blob_bytes = state_bytes(opened->worker);
	opened->state = OPENED_SEALED;
	opened->seal = NULL;
	request_answer(request, &seal->answer, fds, count);
	seal_free(seal);
}

static void handle_attached(struct call *call, const struct answer *answer)
{
	struct request *request = (struct request *)call;
	struct seal *seal = request->opened->seal;

	request->in_group = false;
	seal->answer = request_message(request, answer);
	if (seal->attaching)
		seal->answered = true; /* the worker is not known yet */
	else
		finish(seal);
}

static void attach(struct seal *seal)
{
	struct request *request = seal->request;

	request->in_group = true;
	request->call.done = handle_attached;
	seal->attaching = true;
	int code = group_attach(seal->serve->config.group, seal->manifest, seal->plan, seal->code, seal->text,
				&request->call, &seal->opened->worker);
	seal->attaching = false;
	if (code < 0) {
		request->in_group = false;
		fail(seal, code, code == -ENOMEM ? "out of memory" : "the seal was refused");
		return;
	}
	plan_unref(seal->plan); /* the group holds its own */
	seal->plan = NULL;
	if (seal->answered)
		finish(seal);
}

static void submit(struct seal *seal)
{
	seal->in_exec = true;
	seal->serve->seals++;
	seal->serve->config.executor->submit(seal->serve->config.executor, &seal->job);
}

static void handle_job_done(struct job *job)
{
	struct seal *seal = (struct seal *)job;
	struct plan *found;

	seal->in_exec = false;
	seal->serve->seals--;
	if (!seal->request) {
		seal_free(seal);
		return;
	}
	if (!seal->sealed) { /* without a hash there is nothing to compare */
		fail(seal, seal->code, seal->text);
		return;
	}
	found = group_find_plan(seal->serve->config.group, manifest_name(seal->manifest));
	if (found && seal->plan) {
		plan_unref(seal->plan); /* another worker was faster */
		seal->plan = NULL;
	}
	if (!found && !seal->plan && seal->code == 0) {
		seal->wants_plan = true;
		submit(seal);
		return;
	}
	attach(seal);
}

void seal_begin(struct request *request)
{
	struct opened *opened = request->opened;
	struct serve *serve = request->session->serve;
	struct seal *seal = calloc(1, sizeof(*seal));

	if (!seal) {
		request_fail(request, -ENOMEM, "out of memory");
		return;
	}
	seal->job.run = run;
	seal->job.done = handle_job_done;
	seal->serve = serve;
	seal->request = request;
	seal->opened = opened;
	seal->manifest = manifest_ref(opened->registration.manifest);
	seal->sealed = opened->state == OPENED_UNSEALED;
	seal->wants_plan = !group_find_plan(serve->config.group, manifest_name(seal->manifest));
	opened->seal = seal;
	opened->state = OPENED_SEALING;
	submit(seal);
}
