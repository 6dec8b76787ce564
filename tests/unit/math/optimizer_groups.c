/* Numbers of groups of parameters. */
#include <criterion/criterion.h>

#include "daemon/math/optimizer_groups.h"
#include "fsdp/error.h"

#include <string.h>

static struct optimizer_options rate(double learning_rate)
{
	return (struct optimizer_options){ .learning_rate = learning_rate };
}

static int add(struct optimizer_groups *groups, uint32_t group, double learning_rate)
{
	const struct optimizer_options options = rate(learning_rate);
	const char *text;
	return optimizer_groups_add(groups, group, &options, &text);
}

static double rate_of(const struct optimizer_groups *groups, uint32_t group)
{
	const struct optimizer_options own = rate(1);
	return optimizer_groups_of(groups, &own, group)->learning_rate;
}

Test(optimizer_groups, are_found_whatever_the_order_in_which_they_were_given)
{
	struct optimizer_groups groups = { 0 };
	cr_assert_eq(add(&groups, 7, 7), 0);
	cr_assert_eq(add(&groups, UINT32_MAX, 9), 0);
	cr_assert_eq(add(&groups, 3, 3), 0);
	cr_assert_eq(rate_of(&groups, 0), 1);
	cr_assert_eq(rate_of(&groups, 3), 3);
	cr_assert_eq(rate_of(&groups, 5), 1);
	cr_assert_eq(rate_of(&groups, 7), 7);
	cr_assert_eq(rate_of(&groups, 8), 1);
	cr_assert_eq(rate_of(&groups, UINT32_MAX), 9);
	cr_assert_eq(rate_of(NULL, 3), 1);
}

Test(optimizer_groups, group_0_a_group_given_twice_and_too_many_are_refused)
{
	struct optimizer_groups groups = { 0 };
	cr_assert_eq(add(&groups, 0, 1), FSDP_E_INVALID);
	for (uint32_t i = 1; i <= 64; i++) {
		cr_assert_eq(add(&groups, i, 2), 0);
	}
	cr_assert_eq(add(&groups, 64, 3), FSDP_E_INVALID);
	cr_assert_eq(add(&groups, 65, 3), FSDP_E_INVALID);
	cr_assert_eq(groups.count, 64);
}

Test(optimizer_groups, that_say_the_same_are_the_same_memory)
{
	const struct optimizer_options own = rate(1);
	struct optimizer_groups one = { 0 }, other = { 0 };
	add(&one, 4, 4);
	add(&one, 2, 1);
	add(&one, 3, 3);
	add(&other, 3, 3);
	add(&other, 4, 4);
	optimizer_groups_reduce(&one, &own);
	optimizer_groups_reduce(&other, &own);
	cr_assert_eq(one.count, 2);
	cr_assert_eq(memcmp(&one, &other, sizeof(one)), 0);
}

Test(optimizer_groups, the_one_that_makes_no_sense_is_named)
{
	const struct optimizer_spec spec = { .kind = OPTIMIZER_SGD };
	struct optimizer_groups groups = { 0 };
	uint32_t group = 0;
	const char *text = NULL;
	add(&groups, 2, 1);
	cr_assert_eq(optimizer_groups_check(&spec, &groups, &group, &text), 0);
	add(&groups, 5, -1);
	cr_assert_eq(optimizer_groups_check(&spec, &groups, &group, &text), FSDP_E_INVALID);
	cr_assert_eq(group, 5);
	cr_assert_not_null(strstr(text, "learning rate"));
}
