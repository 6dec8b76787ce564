/* What failures say, and calls that fail before there is a model. */
#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/client/trainer.h"

#define says(part) cr_assert(strstr(fsdp_last_error(), part), "%s", fsdp_last_error())

Test(client_errors, every_code_has_its_own_text)
{
#define TEXT(name, number, text) cr_assert_str_eq(fsdp_strerror(name), text);
	FSDP_ERRORS(TEXT)
	cr_assert_str_eq(fsdp_strerror(0), "success");
	cr_assert_str_eq(fsdp_strerror(-ENOMEM), "Cannot allocate memory");
	cr_assert_str_eq(fsdp_strerror(-9999), "unknown code");
	cr_assert_str_eq(fsdp_strerror(12), "unknown code");
	cr_assert_str_eq(fsdp_strerror(INT_MIN), "unknown code");
}

static void *ask_in_a_thread(void *context)
{
	(void)context;
	cr_assert_str_eq(fsdp_last_error(), "");
	fsdp_client_open("/nowhere/b.sock", &(struct fsdp_client *){ NULL });
	return NULL;
}

Test(client_errors, the_story_belongs_to_the_thread_whose_call_failed)
{
	struct fsdp_client *client = NULL;
	cr_assert_eq(fsdp_client_open("/nowhere/a.sock", &client), FSDP_E_UNREACHABLE);
	pthread_t thread;
	cr_assert_eq(pthread_create(&thread, NULL, ask_in_a_thread, NULL), 0);
	pthread_join(thread, NULL);
	says("/nowhere/a.sock");
	says("FSDP_SOCKET");
	cr_assert_null(client);
}

Test(client_errors, null_path_means_the_environment_variable)
{
	struct fake *fake = fake_start();
	struct fsdp_client *client;
	setenv("FSDP_SOCKET", "/nowhere/c.sock", 1);
	cr_assert_eq(fsdp_client_open(NULL, &client), FSDP_E_UNREACHABLE);
	says("/nowhere/c.sock");
	setenv("FSDP_SOCKET", "", 1);
	cr_assert_eq(fsdp_client_open(NULL, &client), FSDP_E_UNREACHABLE);
	says("/run/fsdpd/client.sock");
	setenv("FSDP_SOCKET", fake->path, 1);
	cr_assert_eq(fsdp_client_open(NULL, &client), 0, "%s", fsdp_last_error());
	struct fsdp_group group;
	cr_assert_eq(fsdp_client_group(client, &group), 0);
	cr_assert_eq(group.rank, 0);
	cr_assert_eq(group.world_size, 1);
	cr_assert_eq(group.generation, 77);
	cr_assert_eq(fake->last[WORKER_HELLO].protocol, WORKER_PROTOCOL);
	fsdp_client_close(client);
	fake_stop(fake);
}

Test(client_errors, a_path_that_fits_no_socket_is_refused_with_both_lengths)
{
	struct fsdp_client *client;
	char path[200];
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	cr_assert_eq(fsdp_client_open(path, &client), FSDP_E_INVALID);
	says("199 bytes");
	says("107");
}

Test(client_errors, null_handles_are_errors_and_not_crashes)
{
	void *grad;
	struct fsdp_shard shard;
	cr_assert_eq(fsdp_client_close(NULL), 0);
	cr_assert_eq(fsdp_model_close(NULL, 0), 0);
	cr_assert_eq(fsdp_client_group(NULL, NULL), FSDP_E_INVALID);
	cr_assert_eq(fsdp_model_open(NULL, "m", NULL, NULL), FSDP_E_INVALID);
	cr_assert_eq(fsdp_unit_add(NULL, "u", NULL, 0, NULL), FSDP_E_INVALID);
	cr_assert_eq(fsdp_model_seal(NULL, NULL), FSDP_E_INVALID);
	cr_assert_eq(fsdp_unit_load(NULL, NULL, 0), FSDP_E_INVALID);
	cr_assert_eq(fsdp_unit_unshard(NULL), FSDP_E_INVALID);
	cr_assert_eq(fsdp_unit_unshard_start(NULL), FSDP_E_INVALID);
	cr_assert_eq(fsdp_unit_reshard(NULL), FSDP_E_INVALID);
	cr_assert_null(fsdp_unit_param(NULL, 0));
	cr_assert_eq(fsdp_unit_grad(NULL, 0, &grad), FSDP_E_INVALID);
	cr_assert_eq(fsdp_unit_reduce(NULL), FSDP_E_INVALID);
	cr_assert_eq(fsdp_model_step(NULL, NULL, NULL), FSDP_E_INVALID);
	cr_assert_eq(fsdp_unit_shard(NULL, 0, &shard), FSDP_E_INVALID);
	cr_assert_eq(fsdp_model_update_shards(NULL, NULL, 0), FSDP_E_INVALID);
	cr_assert_eq(fsdp_model_forward(NULL, NULL, NULL), FSDP_E_INVALID);
	says("fsdp_model_forward");
}

static enum fake_verdict refuse_unshard(struct fake *fake, const struct worker_message *request,
					struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	if (request->op != WORKER_UNSHARD)
		return FAKE_SEND;
	fake->units[request->unit].unshards--;
	answer->code = FSDP_E_TIMEOUT;
	if (request->unit == 1)
		strcpy(answer->text, "unit \"u1\" waited 2 s for rank 2");
	return FAKE_SEND;
}

Test(client_errors, the_daemons_own_words_come_with_the_call_and_a_bare_code_with_the_unit)
{
	struct trainer trainer = trainer_start();
	trainer.fake->hook = refuse_unshard;
	cr_assert_eq(fsdp_unit_unshard(trainer.units[1]), FSDP_E_TIMEOUT);
	cr_assert_str_eq(fsdp_last_error(), "fsdp_unit_unshard: unit \"u1\" waited 2 s for rank 2");
	cr_assert_eq(fsdp_unit_unshard(trainer.units[2]), FSDP_E_TIMEOUT);
	cr_assert_str_eq(fsdp_last_error(), "fsdp_unit_unshard: unit \"u2\": the deadline passed");
	cr_assert_eq(fsdp_unit_reshard(trainer.units[2]), FSDP_E_STATE);
	trainer_stop(&trainer);
}

static enum fake_verdict hang_up(struct fake *fake, const struct worker_message *request, struct worker_message *answer,
				 int *fds, size_t *fd_count)
{
	(void)fake;
	(void)answer;
	(void)fds;
	(void)fd_count;
	return request->op == WORKER_STEP ? FAKE_DROP : FAKE_SEND;
}

Test(client_errors, a_lost_connection_stays_lost_and_says_what_to_do)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	cr_assert_eq(fsdp_unit_unshard(trainer.units[0]), 0);
	trainer.fake->hook = hang_up;
	cr_assert_eq(fsdp_model_step(trainer.model, NULL, NULL), FSDP_E_UNREACHABLE);
	says("open it again");
	cr_assert_eq(fsdp_unit_unshard(trainer.units[1]), FSDP_E_UNREACHABLE);
	cr_assert_eq(((const float *)fsdp_unit_param(trainer.units[0], 0))[0], 1.0f, "what is held stays readable");
	cr_assert_eq(fsdp_model_close(trainer.model, 1), FSDP_E_UNREACHABLE);
	trainer_stop(&trainer);
}
