/* Commands and reports own what they carry: the address sanitizer is the judge here. */
#include "daemon/store/command.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/unit/store/manifest_text.h"

Test(command, begins_empty_and_frees_what_it_carries)
{
	struct manifest *manifest = manifest_text("m", NULL, "u: a f32[2]");
	struct plan *plan;
	cr_assert_eq(plan_new(manifest, 0, 1, &plan), 0);
	manifest_unref(manifest);
	struct command *command = command_new(COMMAND_ADD);
	cr_assert_eq(command->kind, COMMAND_ADD);
	cr_assert_eq(command->step, 0);
	cr_assert_null(command->bits);
	command->plan = plan_ref(plan);
	command->bits = calloc(1, 4);
	command->incarnations = calloc(2, sizeof(uint64_t));
	command_free(command);
	cr_assert_eq(plan_unit_count(plan), 1, "the other reference still counts");
	plan_unref(plan);
	command_free(NULL);
}

Test(report, begins_empty_and_frees_what_it_carries)
{
	struct report *report = report_new(REPORT_BULK);
	cr_assert_eq(report->kind, REPORT_BULK);
	cr_assert_null(report->sums);
	report->ranks = calloc(2, sizeof(uint32_t));
	report->sums = calloc(2, sizeof(uint64_t));
	report_free(report);
	report_free(NULL);
}
