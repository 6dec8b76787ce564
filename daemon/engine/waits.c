/*
 * Collects who is waited for into one report. The engine's thread. Gathers come first; then the units whose
 * contributions are missing; only where none is, the owners that have not added ours, as those mostly wait for the
 * former themselves.
 */
#include "daemon/engine/waits.h"

#include "daemon/engine/shards.h"

struct waits {
	struct report *report;
	enum wait_op op;
};

static bool waits_add(void *context, uint32_t unit, uint32_t rank)
{
	struct waits *waits = context;
	struct report *report = waits->report;

	if (report->wait_count == REPORT_WAITS_MAX)
		return false;
	report->waits[report->wait_count++] = (struct wait){ .op = waits->op, .unit = unit, .rank = rank };
	return true;
}

void waits_report(const struct model *model, uint64_t token)
{
	struct waits waits = { .report = report_new(REPORT_WAITING), .op = WAIT_GATHER };
	uint32_t gathers;

	waits.report->model = model->id;
	waits.report->token = token;
	reader_waits(model, waits_add, &waits);
	gathers = waits.report->wait_count;
	waits.op = WAIT_REDUCE;
	collect_waits(model, waits_add, &waits);
	if (waits.report->wait_count == gathers)
		push_waits(model, waits_add, &waits);
	engine_report(model->engine, waits.report);
}
