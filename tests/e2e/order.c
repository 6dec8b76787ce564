/* Order and registration: what differs between ranks is refused or does no harm. */
#include "tests/e2e/e2e.h"

#include <pthread.h>
#include <time.h>

static struct fsdp_param vector(const char *name, uint64_t count)
{
	return (struct fsdp_param){ .name = name, .dtype = FSDP_F32, .ndim = 1, .shape = { count } };
}

/* Both ranks are refused within a second; the story has all the words. */
static void refused(struct e2e *e2e, const char *a, const char *b, const char *c)
{
	double began = e2e_seconds();
	FAILS(FSDP_E_MISMATCH, fsdp_model_seal(e2e->model, NULL), a, b, c);
	double took = e2e_seconds() - began;
	CHECK(took < 1.0, "the refusal took %.3f s", took);
	e2e_close(e2e);
	/* and the next valid step succeeds */
	const float values[] = { 1, 2 }, zeros[] = { 0, 0 };
	e2e_open(e2e, NULL);
	struct fsdp_unit *unit = e2e_add(e2e, "good", 2);
	DO(fsdp_model_seal(e2e->model, NULL));
	e2e_load(unit, values);
	e2e_full_is(unit, 0, values, 2);
	e2e_reduce(unit, zeros, 2);
	DO(fsdp_model_step(e2e->model, NULL, NULL));
}

static void parameters_in_another_order(struct e2e *e2e)
{
	struct fsdp_param ab[] = { vector("a", 4), vector("b", 6) }, ba[] = { vector("b", 6), vector("a", 4) };
	e2e_open(e2e, NULL);
	e2e_add_params(e2e, "u0", e2e->rank ? ba : ab, 2);
	e2e_meet(e2e, "ready");
	refused(e2e, "unit \"u0\" entry 0", "a f32[4]", "b f32[6]");
}

static void unit_under_another_name(struct e2e *e2e)
{
	e2e_open(e2e, NULL);
	e2e_add(e2e, e2e->rank ? "model" : "model_1", 4);
	e2e_meet(e2e, "ready");
	refused(e2e, "model", "model_1", "rank");
}

static void another_shape(struct e2e *e2e)
{
	e2e_open(e2e, NULL);
	e2e_add(e2e, "u0", e2e->rank ? 5 : 4);
	e2e_meet(e2e, "ready");
	refused(e2e, "f32[4]", "f32[5]", "u0");
}

static void another_dtype(struct e2e *e2e)
{
	struct fsdp_param param = vector("w", 4);
	param.dtype = e2e->rank ? FSDP_BF16 : FSDP_F32;
	e2e_open(e2e, NULL);
	e2e_add_params(e2e, "u0", &param, 1);
	e2e_meet(e2e, "ready");
	refused(e2e, "f32[4]", "bf16[4]", "u0");
}

static void another_optimizer(struct e2e *e2e)
{
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	options.optimizer = e2e->rank ? FSDP_OPTIMIZER_SGD : FSDP_OPTIMIZER_ADAMW;
	e2e_open(e2e, &options);
	e2e_add(e2e, "u0", 4);
	e2e_meet(e2e, "ready");
	refused(e2e, "optimizer", "rank 0", "rank 1");
}

static void a_dtype_that_comes_later(struct e2e *e2e)
{
	struct fsdp_param param = vector("w", 4);
	param.dtype = FSDP_BF16;
	e2e_open(e2e, NULL);
	e2e_add_params(e2e, "u0", &param, 1);
	FAILS(FSDP_E_DTYPE, fsdp_model_seal(e2e->model, NULL), "bf16");
}

static const float u0[] = { 1, 2, 3, 4 }, u1[] = { 5, 6, 7, 8 };

static void two_units(struct e2e *e2e)
{
	e2e_open(e2e, NULL);
	/* The order of units is each rank's own. */
	e2e_add(e2e, e2e->rank ? "u1" : "u0", 4);
	e2e_add(e2e, e2e->rank ? "u0" : "u1", 4);
	DO(fsdp_model_seal(e2e->model, NULL));
	e2e_load(e2e->units[0], e2e->rank ? u1 : u0);
	e2e_load(e2e->units[1], e2e->rank ? u0 : u1);
}

static void units_in_another_order(struct e2e *e2e)
{
	two_units(e2e);
	DO(fsdp_unit_unshard(e2e->units[0]));
	DO(fsdp_unit_unshard(e2e->units[1]));
	e2e_full_is(e2e->units[0], 0, e2e->rank ? u1 : u0, 4);
	e2e_full_is(e2e->units[1], 0, e2e->rank ? u0 : u1, 4);
	DO(fsdp_unit_reshard(e2e->units[0]));
	DO(fsdp_unit_reshard(e2e->units[1]));
}

static void one_rank_gathers_alone(struct e2e *e2e)
{
	two_units(e2e);
	for (int i = 0; i < 3 && e2e->rank == 0; i++)
		e2e_full_is(e2e->units[1], 0, u1, 4);
	e2e_meet(e2e, "done");
}

/* The number behind "name": in fsdpctl's JSON. */
static double number_of(const char *json, const char *name)
{
	char key[64];
	snprintf(key, sizeof(key), "\"%s\":", name);
	const char *at = strstr(json, key);
	CHECK(at, "no %s in %s", name, json);
	return atof(at + strlen(key));
}

static void a_rank_without_a_gradient(struct e2e *e2e)
{
	enum { COUNT = 100000 };
	static float values[COUNT], gradient[COUNT], mean[COUNT];
	static char answer[65536];
	int code;
	for (int i = 0; i < COUNT; i++) {
		gradient[i] = 2;
		mean[i] = 1;
	}
	e2e_open(e2e, NULL);
	struct fsdp_unit *first = e2e_add(e2e, "u0", COUNT), *second = e2e_add(e2e, "u1", COUNT);
	DO(fsdp_model_seal(e2e->model, NULL));
	e2e_load(first, values);
	e2e_load(second, values);
	if (e2e->rank == 0)
		e2e_reduce(second, gradient, COUNT);
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(second, mean, COUNT / 2);
	e2e_gradient_is(first, values, COUNT / 2);
	if (e2e->rank == 1) {
		e2e_ask("--json status", answer, sizeof(answer), &code);
		CHECK(number_of(answer, "pushed_bytes") == 0, "rank 1 pushed payload: %s", answer);
		CHECK(number_of(answer, "added_bytes") > 0, "nothing was added: %s", answer);
	}
}

/* T = 2 s. At about 1 s status tells what is awaited; at 2 s the error says the same. */
static void *look_half_way(void *context)
{
	static char answer[65536];
	int code;
	(void)context;
	nanosleep(&(struct timespec){ .tv_sec = 1, .tv_nsec = 400000000 }, NULL);
	e2e_ask("status", answer, sizeof(answer), &code);
	CHECK(strstr(answer, "u0") && strstr(answer, "reduce-scatter") && strstr(answer, "rank 2"),
	      "status does not say what is awaited:\n%s", answer);
	return NULL;
}

static void a_sleeping_rank_is_named(struct e2e *e2e)
{
	const float values[] = { 1, 2, 3 };
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, 3);
	e2e_full_is(unit, 0, values, 3);
	e2e_meet(e2e, "loaded");
	if (e2e->rank == 2) {
		e2e_meet(e2e, "timed out");
		e2e_wait_for("attempt 1,"); /* this rank's daemon may hear of it a little later */
		void *grad;
		FAILS(FSDP_E_ABORTED, fsdp_unit_grad(unit, 0, &grad), "rank 2");
	} else {
		pthread_t thread;
		e2e_reduce(unit, values, 3);
		double began = e2e_seconds();
		CHECK(pthread_create(&thread, NULL, look_half_way, NULL) == 0, "no thread");
		FAILS(FSDP_E_TIMEOUT, fsdp_model_sync_gradients(e2e->model), "u0", "reduce-scatter", "rank 2");
		double took = e2e_seconds() - began;
		CHECK(took > 1.5 && took < 3.5, "the deadline of 2 s came after %.3f s", took);
		pthread_join(thread, NULL);
		e2e_meet(e2e, "timed out");
	}
	/* the next valid step succeeds */
	e2e_reduce(unit, values, 3);
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(unit, values + e2e->rank, 1);
	DO(fsdp_model_step(e2e->model, NULL, NULL));
}

const struct e2e_case e2e_order[] = {
	{ "order_parameters_in_another_order", parameters_in_another_order },
	{ "order_unit_under_another_name", unit_under_another_name },
	{ "order_another_shape", another_shape },
	{ "order_another_dtype", another_dtype },
	{ "order_another_optimizer", another_optimizer },
	{ "order_a_dtype_that_comes_later", a_dtype_that_comes_later },
	{ "order_units_in_another_order", units_in_another_order },
	{ "order_one_rank_gathers_alone", one_rank_gathers_alone },
	{ "order_a_rank_without_a_gradient", a_rank_without_a_gradient },
	{ "order_a_sleeping_rank_is_named", a_sleeping_rank_is_named },
	{ 0 },
};
