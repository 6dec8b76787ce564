/* The numbers of the original's own tests, on two nodes. */
#include "tests/e2e/e2e.h"

static void shards_are_halves(struct e2e *e2e)
{
	const float values[] = { 10, 20, 30, 40 };
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, 4);
	e2e_full_is(unit, 0, values, 4); /* verified on both ranks */
	e2e_shard_is(unit, values + 2 * e2e->rank, 2);
}

struct product {
	float x, sum;
};

static int multiply(struct fsdp_unit *unit, size_t index, void *context)
{
	struct product *product = context;
	const float *w = fsdp_unit_param(unit, 0);
	(void)index;
	for (int i = 0; i < 4; i++)
		product->sum += w[i] * product->x;
	return 0;
}

static void forward_gathers_the_whole(struct e2e *e2e)
{
	const float values[] = { 1, 2, 3, 4 };
	struct product product = { .x = 2 };
	e2e_vector(e2e, NULL, values, 4);
	DO(fsdp_model_forward(e2e->model, multiply, &product));
	CHECK(product.sum == 20.0f, "%g", (double)product.sum);
}

static int stop_at_once(struct fsdp_unit *unit, size_t index, void *context)
{
	(void)unit;
	(void)index;
	++*(int *)context;
	return 42;
}

static void forward_stops_where_it_is_told(struct e2e *e2e)
{
	const float values[] = { 1, 2, 3, 4 };
	int calls = 0;
	e2e_open(e2e, NULL);
	struct fsdp_unit *u0 = e2e_add(e2e, "u0", 4), *u1 = e2e_add(e2e, "u1", 4);
	DO(fsdp_model_seal(e2e->model, NULL));
	e2e_load(u0, values);
	e2e_load(u1, values);
	CHECK(fsdp_model_forward(e2e->model, stop_at_once, &calls) == 42, "not the callback's own value");
	CHECK(calls == 1, "%d calls", calls);
	FAILS(FSDP_E_STATE, fsdp_unit_reshard(u0), "u0");
}

static void sync_of_equal_gradients(struct e2e *e2e)
{
	const float values[] = { 0, 0, 0, 0 }, gradient[] = { 1, 2, 3, 4 };
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, 4);
	e2e_reduce(unit, gradient, 4);
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(unit, gradient + 2 * e2e->rank, 2);
}

static void sync_is_a_mean(struct e2e *e2e)
{
	const float values[] = { 0, 0, 0, 0 }, zeros[] = { 0, 0, 0, 0 }, evens[] = { 2, 4, 6, 8 },
		    mean[] = { 1, 2, 3, 4 };
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, 4);
	e2e_reduce(unit, e2e->rank ? evens : zeros, 4);
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(unit, mean + 2 * e2e->rank, 2);
}

static void update_shards_replaces_values(struct e2e *e2e)
{
	const float values[] = { 1, 2, 3, 4 }, fresh[] = { 5, 6, 7, 8 };
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, 4);
	e2e_full_is(unit, 0, values, 4);
	DO(fsdp_model_update_shards(e2e->model, fresh + 2 * e2e->rank, 2));
	e2e_full_is(unit, 0, fresh, 4);
	e2e_shard_is(unit, fresh + 2 * e2e->rank, 2);
}

static void update_shards_wants_exactly_its_elements(struct e2e *e2e)
{
	float values[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, 4 * e2e->world);
	FAILS(FSDP_E_INVALID, fsdp_model_update_shards(e2e->model, values, 2), "2", "4");
	e2e_full_is(unit, 0, values, 4 * e2e->world);
	e2e_shard_is(unit, values + 4 * e2e->rank, 4);
}

const struct e2e_case e2e_original[] = {
	{ "original_shards_are_halves", shards_are_halves },
	{ "original_forward_gathers_the_whole", forward_gathers_the_whole },
	{ "original_forward_stops_where_it_is_told", forward_stops_where_it_is_told },
	{ "original_sync_of_equal_gradients", sync_of_equal_gradients },
	{ "original_sync_is_a_mean", sync_is_a_mean },
	{ "original_update_shards_replaces_values", update_shards_replaces_values },
	{ "original_update_shards_wants_exactly_its_elements", update_shards_wants_exactly_its_elements },
	{ 0 },
};
