/* Prints answers for people: one fact a line, or a table whose columns fit 80 characters where names are short. */
#include "client/ctl/print.h"

#include <inttypes.h>
#include <stdio.h>

/* "12.3 MiB" into a buffer of 16. */
static const char *bytes_text(uint64_t bytes, char text[16])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes;
	unsigned unit = 0;
	while (value >= 1024.0 && unit < 6) {
		value /= 1024.0;
		unit++;
	}
	snprintf(text, 16, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return text;
}

static void print_ranks(const struct control_wait *wait)
{
	if (wait->rank_count == 0)
		return;
	printf(", waiting for rank%s", wait->rank_count > 1 ? "s" : "");
	for (size_t i = 0; i < wait->rank_count; i++)
		printf("%s %" PRIu32, i ? "," : "", wait->ranks[i]);
}

static void print_waits(const struct control_message *answer)
{
	for (size_t i = 0; i < answer->wait_count; i++) {
		const struct control_wait *wait = &answer->waits[i];
		printf("waits     %s, %s", wait->model, wait->op);
		if (wait->unit[0])
			printf(" of %s", wait->unit);
		print_ranks(wait);
		printf(" (%.1f s of %.1f s)\n", (double)wait->waiting_ms / 1e3, (double)wait->deadline_ms / 1e3);
	}
}

void text_status(const struct control_message *answer)
{
	const struct control_status *status = &answer->status;
	char a[16], b[16], c[16], d[16];
	printf("%s: %s%s\n", status->cluster, status->phase, status->degraded ? " (degraded)" : "");
	printf("daemon    fsdpd %s, up %" PRIu64 " s, generation %016" PRIx64 "\n", status->version,
	       status->uptime_ms / 1000, status->generation);
	printf("peers     %" PRIu32 " of %" PRIu32 " joined\n", status->joined, status->world_size);
	for (size_t i = 0; i < answer->model_count; i++) {
		const struct control_model *model = &answer->models[i];
		printf("model     %s: %s, %s, step %" PRIu64 ", attempt %" PRIu32 ", micro-batch %" PRIu32 ", %" PRIu32
		       " units, %" PRIu64 " parameters, %" PRIu32 " worker%s\n",
		       model->name, model->state, model->phase, model->step, model->attempt, model->micro_batch,
		       model->units, model->parameters, model->workers, model->workers == 1 ? "" : "s");
		if (model->trouble[0])
			printf("trouble   %s: %s\n", model->name, model->trouble);
	}
	print_waits(answer);
	printf("traffic   %s in, %s out; gathered %s, pushed %s", bytes_text(status->bytes_in, a),
	       bytes_text(status->bytes_out, b), bytes_text(status->gather_bytes, c),
	       bytes_text(status->pushed_bytes, d));
	printf(", sent again %s\n", bytes_text(status->resent_bytes, a));
	printf("dropped   %" PRIu64 " malformed, %" PRIu64 " refused, %" PRIu64 " stale, %" PRIu64
	       " duplicate, %" PRIu64 " in violation\n",
	       status->malformed, status->refused, status->stale, status->duplicates, status->violations);
}

void text_peers(const struct control_message *answer)
{
	printf("%5s  %-10s %-5s %9s  %-16s  %s\n", "RANK", "STATE", "BULK", "HEARD", "INCARNATION", "ENDPOINT");
	for (size_t i = 0; i < answer->peer_count; i++) {
		const struct control_peer *peer = &answer->peers[i];
		char heard[32] = "never";
		if (peer->heard_ms_ago != UINT64_MAX)
			snprintf(heard, sizeof(heard), "%.1f s", (double)peer->heard_ms_ago / 1e3);
		printf("%5" PRIu32 "  %-10s %-5s %9s  %016" PRIx64 "  %s\n", peer->rank, peer->state,
		       peer->bulk_up ? "up" : "down", heard, peer->incarnation, peer->endpoint);
		if (peer->refusal[0])
			printf("       refused: %s\n", peer->refusal);
	}
}

void text_models(const struct control_message *answer)
{
	printf("%-20s %-9s %-9s %8s %7s %7s %7s %11s\n", "MODEL", "STATE", "PHASE", "STEP", "SKIPPED", "ABORTED",
	       "WORKERS", "SHARD");
	for (size_t i = 0; i < answer->model_count; i++) {
		const struct control_model *model = &answer->models[i];
		char bytes[16], used[16], all[16];
		printf("%-20s %-9s %-9s %8" PRIu64 " %7" PRIu64 " %7" PRIu64 " %7" PRIu32 " %11s\n", model->name,
		       model->state, model->phase, model->step, model->skipped, model->aborted, model->workers,
		       bytes_text(model->shard_bytes, bytes));
		printf("  gather pool %s of %s", bytes_text(model->gather_used, used),
		       bytes_text(model->gather_bytes, all));
		printf(", gradient pool %s of %s\n", bytes_text(model->grad_used, used),
		       bytes_text(model->grad_bytes, all));
		if (model->trouble[0])
			printf("  trouble: %s\n", model->trouble);
	}
}

void text_units(const struct control_message *answer)
{
	printf("%-28s %8s %11s %12s %5s %-9s %s\n", "UNIT", "VERSION", "FULL", "SHARD", "HELD", "GATHERED", "REDUCED");
	for (size_t i = 0; i < answer->unit_count; i++) {
		const struct control_unit *unit = &answer->units[i];
		char bytes[16];
		printf("%-28s %8" PRIu64 " %11s %12" PRIu64 " %5" PRIu32 " %-9s %s\n", unit->name, unit->version,
		       bytes_text(unit->full_bytes, bytes), unit->shard_elements, unit->held,
		       unit->gathered ? "yes" : "no", unit->reduced ? "yes" : "no");
	}
}

void text_workers(const struct control_message *answer)
{
	printf("%8s %8s %-24s %6s %-20s %s\n", "PID", "UID", "MODEL", "LOCAL", "CALL", "ATTACHED");
	for (size_t i = 0; i < answer->worker_count; i++) {
		const struct control_worker *worker = &answer->workers[i];
		char call[64] = "-";
		if (worker->call[0])
			snprintf(call, sizeof(call), "%s %.1f s", worker->call, (double)worker->waiting_ms / 1e3);
		printf("%8" PRId64 " %8" PRIu32 " %-24s %6" PRIu32 " %-20s %.1f s\n", worker->pid, worker->uid,
		       worker->model[0] ? worker->model : "-", worker->local_worker, call,
		       (double)worker->attached_ms / 1e3);
	}
}

void text_done(const struct control_message *answer)
{
	if (answer->text[0])
		printf("%s\n", answer->text);
}
