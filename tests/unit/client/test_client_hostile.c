/* A daemon that lies: every lie is FSDP_E_PROTOCOL, with a text, and never a crash. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/client/trainer.h"

struct lie {
	enum worker_op op;
	void (*tell)(struct worker_message *answer, int *fds, size_t *fd_count);
	const char *text;
};

static enum fake_verdict lie_hook(struct fake *fake, const struct worker_message *request,
				  struct worker_message *answer, int *fds, size_t *fd_count)
{
	const struct lie *lie = fake->context;
	if (request->op == lie->op)
		lie->tell(answer, fds, fd_count);
	return FAKE_SEND;
}

static void use(struct fake *fake, const struct lie *lie)
{
	fake->context = (void *)(uintptr_t)lie;
	fake->hook = lie_hook;
}

static void expect(int code, const struct lie *lie)
{
	cr_assert_eq(code, FSDP_E_PROTOCOL, "%d: %s", code, fsdp_last_error());
	cr_assert(strstr(fsdp_last_error(), lie->text), "%s", fsdp_last_error());
}

static void no_fds(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)answer;
	while (*fd_count > 0)
		close(fds[--*fd_count]);
}
static void one_fd_less(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)answer;
	close(fds[--*fd_count]);
}
static void one_fd_more(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)answer;
	fds[*fd_count] = dup(fds[0]);
	(*fd_count)++;
}
static void a_pipe(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)answer;
	(void)fd_count;
	int ends[2];
	cr_assert_eq(pipe(ends), 0);
	close(ends[1]);
	close(fds[3]);
	fds[3] = ends[0];
}
static void larger_gathers(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	answer->gather_bytes++;
}
static void huge_shards(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	answer->shard_bytes = UINT64_MAX;
}

Test(client_hostile, a_seal_whose_memory_is_not_what_it_says_is_refused)
{
	static const struct lie lies[] = {
		{ WORKER_SEAL, no_fds, "no descriptor of masters" },
		{ WORKER_SEAL, one_fd_less, "no descriptor of gradient buffers" },
		{ WORKER_SEAL, one_fd_more, "6 descriptors where 5 belong" },
		{ WORKER_SEAL, a_pipe, "gathers is not a memory file" },
		{ WORKER_SEAL, larger_gathers, "gathers have 4194305 bytes, its memory has 4194304" },
		{ WORKER_SEAL, huge_shards, "masters have 18446744073709551615" },
	};
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct trainer trainer = trainer_open(fake_start());
		use(trainer.fake, &lies[i]);
		expect(fsdp_model_seal(trainer.model, NULL), &lies[i]);
		cr_assert_eq(fsdp_unit_unshard(trainer.units[0]), FSDP_E_STATE);
		cr_assert_eq(fsdp_model_close(trainer.model, 1), FSDP_E_PROTOCOL, "the connection is gone");
		trainer_stop(&trainer);
	}
}

Test(client_hostile, memory_that_could_shrink_is_refused)
{
	struct fake *fake = fake_start();
	fake->unsealed_memory = true;
	struct trainer trainer = trainer_open(fake);
	cr_assert_eq(fsdp_model_seal(trainer.model, NULL), FSDP_E_PROTOCOL);
	cr_assert(strstr(fsdp_last_error(), "could shrink"));
	trainer_stop(&trainer);
}

static void no_places(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	answer->place_count = 0;
}
static void other_size(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	answer->places[0].full_bytes += 4;
}
static void shard_beyond_unit(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	answer->places[0].shard_offset = UINT64_MAX;
}
static void shard_beyond_arena(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	answer->places[0].arena_offset = (1u << 20) - 24;
}
static void shard_askew(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	answer->places[0].arena_offset = 2;
}

Test(client_hostile, a_place_outside_of_what_was_registered_or_shared_is_refused)
{
	static const struct lie lies[] = {
		{ WORKER_PLACES, no_places, "0 places" },
		{ WORKER_PLACES, other_size, "another size" },
		{ WORKER_PLACES, shard_beyond_unit, "does not lie in it" },
		{ WORKER_PLACES, shard_beyond_arena, "shards' memory" },
		{ WORKER_PLACES, shard_askew, "boundary" },
	};
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct trainer trainer = trainer_open(fake_start());
		use(trainer.fake, &lies[i]);
		expect(fsdp_model_seal(trainer.model, NULL), &lies[i]);
		trainer_stop(&trainer);
	}
}

static void slot_at_the_end(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	answer->slot = FAKE_UNITS_MAX * FAKE_SLOT_BYTES;
}
static void slot_far_away(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	answer->slot = UINT64_MAX - 4095;
}
static void slot_off_a_page(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	answer->slot += 64;
}

Test(client_hostile, a_slot_beyond_its_pool_is_never_mapped)
{
	static const struct lie lies[] = {
		{ WORKER_UNSHARD, slot_at_the_end, "\"u0\"" }, { WORKER_UNSHARD, slot_far_away, "\"u0\"" },
		{ WORKER_UNSHARD, slot_off_a_page, "\"u0\"" }, { WORKER_GRAD, slot_at_the_end, "\"u0\"" },
		{ WORKER_GRAD, slot_far_away, "\"u0\"" },      { WORKER_GRAD, slot_off_a_page, "\"u0\"" },
	};
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct trainer trainer = trainer_start();
		trainer_load(&trainer);
		use(trainer.fake, &lies[i]);
		void *grad;
		expect(lies[i].op == WORKER_UNSHARD ? fsdp_unit_unshard(trainer.units[0])
						    : fsdp_unit_grad(trainer.units[0], 0, &grad),
		       &lies[i]);
		cr_assert_eq(fsdp_model_sync_gradients(trainer.model), FSDP_E_PROTOCOL, "the connection is gone");
		trainer_stop(&trainer);
	}
}

static void other_slot(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	answer->slot = fake_slot(9);
}

Test(client_hostile, a_copy_that_is_held_cannot_be_moved)
{
	static const struct lie lie = { WORKER_UNSHARD, other_slot, "slot" };
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	cr_assert_eq(fsdp_unit_unshard(trainer.units[0]), 0);
	use(trainer.fake, &lie);
	expect(fsdp_unit_unshard(trainer.units[0]), &lie);
	cr_assert_eq(((const float *)fsdp_unit_param(trainer.units[0], 0))[0], 1.0f);
	trainer_stop(&trainer);
}

static void wrong_number(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	answer->request += 1000;
}
static void wrong_op(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	answer->op = WORKER_STEP;
}
static void a_request(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	answer->answer = false;
}
Test(client_hostile, an_answer_that_belongs_to_no_request_ends_the_connection)
{
	static const struct lie lies[] = {
		{ WORKER_SYNC, wrong_number, "belongs to no request" },
		{ WORKER_SYNC, wrong_op, "belongs to no request" },
		{ WORKER_SYNC, a_request, "belongs to no request" },
	};
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct trainer trainer = trainer_start();
		use(trainer.fake, &lies[i]);
		expect(fsdp_model_sync_gradients(trainer.model), &lies[i]);
		trainer_stop(&trainer);
	}
}

static void odd_outcome(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	answer->outcome = 2;
}

Test(client_hostile, an_outcome_that_does_not_exist_is_refused)
{
	static const struct lie lie = { WORKER_STEP, odd_outcome, "outcome 2" };
	struct trainer trainer = trainer_start();
	use(trainer.fake, &lie);
	expect(fsdp_model_step(trainer.model, NULL, NULL), &lie);
	trainer_stop(&trainer);
}

static void earlier_step(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	answer->step = 0;
}

Test(client_hostile, a_buffer_of_a_step_that_is_over_is_not_used)
{
	static const struct lie lie = { WORKER_GRAD, earlier_step, "step 0 ended" };
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	cr_assert_eq(fsdp_model_step(trainer.model, NULL, NULL), 0);
	use(trainer.fake, &lie);
	void *grad;
	cr_assert_eq(fsdp_unit_grad(trainer.units[0], 0, &grad), FSDP_E_STATE);
	cr_assert(strstr(fsdp_last_error(), lie.text), "%s", fsdp_last_error());
	trainer_stop(&trainer);
}

static unsigned open_descriptors(void)
{
	unsigned count = 0;
	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void stray_fd(struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)answer;
	fds[(*fd_count)++] = dup(STDERR_FILENO);
}

Test(client_hostile, descriptors_that_nobody_asked_for_are_closed)
{
	static const struct lie lie = { WORKER_SYNC, stray_fd, "" };
	struct trainer trainer = trainer_start();
	use(trainer.fake, &lie);
	for (int i = 0; i < 20; i++)
		cr_assert_eq(fsdp_model_sync_gradients(trainer.model), 0, "%s", fsdp_last_error());
	/* The fake closes its copy of the last one after this side has heard the answer. */
	trainer.fake->hook = NULL;
	cr_assert_eq(fsdp_model_sync_gradients(trainer.model), 0);
	unsigned after = open_descriptors();
	trainer.fake->hook = lie_hook;
	for (int i = 0; i < 20; i++)
		cr_assert_eq(fsdp_model_sync_gradients(trainer.model), 0);
	trainer.fake->hook = NULL;
	cr_assert_eq(fsdp_model_sync_gradients(trainer.model), 0);
	cr_assert_eq(open_descriptors(), after);
	trainer_stop(&trainer);
}
