/* Unpacking takes no more than its budget, and want of memory is told from a message that wants too much. */
#include "proto/wire_budget.c" /* NOLINT: the allocator is inside */

#include <criterion/criterion.h>

Test(wire_budget, blocks_are_charged_with_what_they_cost)
{
	struct budget budget = { .left = 100 };
	void *first = budget_alloc(&budget, 50);
	cr_assert_not_null(first);
	cr_assert_eq(budget.left, 100 - 50 - BLOCK_BYTES);
	cr_assert_null(budget_alloc(&budget, 19), "19 and the cost of a block are more than 34");
	void *second = budget_alloc(&budget, 18);
	cr_assert_not_null(second);
	cr_assert_eq(budget.left, 0);
	cr_assert_null(budget_alloc(&budget, 0), "even nothing costs");
	cr_assert_not(budget.no_memory);
	budget_free(&budget, first);
	budget_free(&budget, second);
	cr_assert_eq(budget.left, 0, "nothing is given back");
}

Test(wire_budget, a_size_that_overflows_is_refused)
{
	struct budget budget = { .left = 100 };
	cr_assert_null(budget_alloc(&budget, SIZE_MAX));
	cr_assert_null(budget_alloc(&budget, SIZE_MAX - BLOCK_BYTES + 1));
	cr_assert_eq(budget.left, 100);
}
