/* How a worker describes a model: parts, order, limits, and that a unit is taken whole or not at all. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/serve/registration.h"
#include "fsdp/error.h"

static struct worker_message message_open(void)
{
	struct worker_message open = { .op = WORKER_OPEN, .scale = 1, .local_worker = 0, .local_workers = 1 };

	strcpy(open.name, "m");
	return open;
}

static struct worker_param param(const char *name, uint64_t elements)
{
	struct worker_param p = { .dtype = FSDP_F32, .ndim = 1, .shape = { elements } };

	strcpy(p.name, name);
	return p;
}

static int add(struct registration *r, uint32_t unit, const char *name, struct worker_param *params, size_t count,
	       bool more)
{
	struct worker_message message = {
		.op = WORKER_UNIT, .unit = unit, .params = params, .param_count = count, .more = more
	};

	strcpy(message.name, name);
	return registration_add(r, &message);
}

static struct registration begin(void)
{
	struct registration r;
	struct worker_message open = message_open();

	cr_assert_eq(registration_init(&r, &open), 0, "%s", r.text);
	return r;
}

Test(registration, one_worker_a_node_is_taken_and_no_more)
{
	struct registration r;
	struct worker_message open = message_open();

	open.local_workers = 2;
	cr_assert_eq(registration_init(&r, &open), FSDP_E_INVALID);
	cr_assert(strstr(r.text, "several workers a node come later"), "%s", r.text);
	registration_fini(&r);
	open.local_worker = 1;
	cr_assert_eq(registration_init(&r, &open), FSDP_E_INVALID);
	registration_fini(&r);
	open.local_worker = 0;
	open.local_workers = 0;
	cr_assert_eq(registration_init(&r, &open), FSDP_E_INVALID);
	registration_fini(&r);
}

Test(registration, options_that_are_not_valid_are_refused_with_a_reason)
{
	struct registration r;
	struct worker_message open = message_open();

	open.reduce_op = 7;
	cr_assert_eq(registration_init(&r, &open), FSDP_E_INVALID);
	cr_assert_gt(strlen(r.text), 0);
	registration_fini(&r);
	open = message_open();
	open.name[0] = '\0';
	cr_assert_eq(registration_init(&r, &open), FSDP_E_INVALID);
	registration_fini(&r);
}

Test(registration, units_come_whole_or_in_parts)
{
	struct registration r = begin();
	struct worker_param a = param("a", 3), b = param("b", 4), c = param("c", 5);

	cr_assert_eq(add(&r, 0, "u0", &a, 1, false), 0);
	cr_assert_eq(add(&r, 1, "u1", &a, 1, true), 0);
	cr_assert_eq(registration_check_whole(&r), FSDP_E_STATE);
	cr_assert_eq(add(&r, 1, "u1", &b, 1, true), 0);
	cr_assert_eq(add(&r, 1, "u1", &c, 1, false), 0);
	cr_assert_eq(registration_check_whole(&r), 0);
	cr_assert_eq(manifest_seal(r.manifest), 0);
	cr_assert_eq(manifest_unit_count(r.manifest), 2);
	const struct manifest_unit *unit = manifest_unit(r.manifest, manifest_canonical(r.manifest, 1));
	cr_assert_str_eq(unit->name, "u1");
	cr_assert_eq(unit->param_count, 3);
	cr_assert_str_eq(unit->params[2].name, "c");
	cr_assert_eq(unit->params[2].shape[0], 5);
	registration_fini(&r);
}

Test(registration, a_unit_without_parameters_is_a_unit)
{
	struct registration r = begin();

	cr_assert_eq(add(&r, 0, "empty", NULL, 0, false), 0);
	cr_assert_eq(manifest_seal(r.manifest), 0);
	cr_assert_eq(manifest_unit_count(r.manifest), 1);
	registration_fini(&r);
}

Test(registration, a_unit_out_of_order_is_refused_and_said)
{
	struct registration r = begin();
	struct worker_param a = param("a", 3);

	cr_assert_eq(add(&r, 1, "u", &a, 1, false), FSDP_E_STATE);
	cr_assert_str_eq(r.text, "unit 1 was sent where unit 0 belongs");
	cr_assert_eq(add(&r, 0, "u", &a, 1, false), 0);
	cr_assert_eq(add(&r, 0, "v", &a, 1, false), FSDP_E_STATE);
	registration_fini(&r);
}

Test(registration, a_bad_part_leaves_the_model_as_it_was)
{
	struct registration r = begin();
	struct worker_param a = param("a", 3), bad = param("bad", 4), again = param("a", 1);

	bad.dtype = 77;
	cr_assert_eq(add(&r, 0, "u", &a, 1, true), 0);
	cr_assert_eq(add(&r, 0, "u", &bad, 1, false), FSDP_E_INVALID);
	cr_assert(strstr(r.text, "there is no dtype 77"), "%s", r.text);
	cr_assert_eq(add(&r, 0, "u", &a, 1, true), 0);
	cr_assert_eq(add(&r, 0, "u", &again, 1, false), FSDP_E_INVALID);
	cr_assert_eq(add(&r, 0, "u", &a, 1, false), 0);
	cr_assert_eq(add(&r, 1, "u", &a, 1, false), FSDP_E_INVALID);
	cr_assert(strstr(r.text, "unit \"u\" is there already"), "%s", r.text);
	cr_assert_eq(registration_check_whole(&r), 0);
	cr_assert_eq(manifest_seal(r.manifest), 0);
	cr_assert_eq(manifest_unit_count(r.manifest), 1);
	registration_fini(&r);
}

Test(registration, too_many_dimensions_and_overflows_are_refused)
{
	struct registration r = begin();
	struct worker_param deep = param("d", 1), big = param("b", UINT64_MAX);

	deep.ndim = FSDP_DIMS_MAX + 1;
	cr_assert_eq(add(&r, 0, "u", &deep, 1, false), FSDP_E_INVALID);
	cr_assert_eq(add(&r, 0, "u", &big, 1, false), FSDP_E_OVERFLOW);
	registration_fini(&r);
}

Test(registration, what_exceeds_the_whole_model_spoils_it_and_says_so)
{
	struct registration r = begin();
	struct worker_param half = param("h", (uint64_t)1 << 60), small = param("s", 1);

	cr_assert_eq(add(&r, 0, "u0", &half, 1, false), 0);
	cr_assert_eq(add(&r, 1, "u1", &half, 1, false), FSDP_E_OVERFLOW);
	cr_assert_eq(add(&r, 1, "u2", &small, 1, false), FSDP_E_STATE);
	cr_assert_eq(registration_check_whole(&r), FSDP_E_STATE);
	registration_fini(&r);
}

Test(registration, options_of_a_unit_are_set_before_the_seal)
{
	struct registration r = begin();
	struct worker_param a = param("a", 3);
	struct worker_message set = { .op = WORKER_SET_UNIT, .unit = 0, .gather_dtype = FSDP_BF16 };

	cr_assert_eq(registration_set(&r, &set), FSDP_E_INVALID);
	cr_assert_eq(add(&r, 0, "u", &a, 1, true), 0);
	cr_assert_eq(registration_set(&r, &set), FSDP_E_STATE);
	cr_assert_eq(add(&r, 0, "u", NULL, 0, false), 0);
	cr_assert_eq(registration_set(&r, &set), 0);
	set.gather_dtype = FSDP_I8;
	cr_assert_eq(registration_set(&r, &set), FSDP_E_INVALID);
	cr_assert_eq(manifest_seal(r.manifest), 0);
	cr_assert_eq(manifest_unit(r.manifest, 0)->gather_dtype, FSDP_BF16);
	registration_fini(&r);
}
