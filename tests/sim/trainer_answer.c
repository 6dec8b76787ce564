/*
 * What a trainer makes of an answer: it looks at what it was given, takes note of where it stands, and of what is to be
 * done before its script goes on. Nothing here calls the group: it is in the middle of telling. Owns nothing.
 */
#include "tests/sim/sim_trainer.h"

#include "fsdp/error.h"
#include "tests/sim/tally.h"
#include "tests/sim/trace.h"

static bool act_is_of_step(enum act act)
{
	return act == ACT_GRAD || act == ACT_REDUCE || act == ACT_WEIGHT || act == ACT_NEXT || act == ACT_SYNC ||
	       act == ACT_NORM || act == ACT_STEP || act == ACT_ALL_REDUCE || act == ACT_ABORT;
}

/* Where the trainer stands, as a call of the step says that succeeded. */
static void trainer_note(struct trainer *trainer, const struct trainer_call *call, const struct answer *answer)
{
	uint64_t step = call->act == ACT_STEP ? trainer->step + 1 : trainer->step;
	if (answer->step != step) {
		trace_fail("rank %u, call %d: the answer says step %llu, %llu would be right", trainer->node->rank,
			   (int)call->act, (unsigned long long)answer->step, (unsigned long long)step);
	}
	if (call->act != ACT_STEP && call->act != ACT_ABORT && !trainer->raised &&
	    answer->attempt != trainer->attempt) {
		trace_fail("rank %u, call %d succeeds in attempt %u, but nobody told it that attempt %u was aborted",
			   trainer->node->rank, (int)call->act, answer->attempt, trainer->attempt);
	}
	trainer->raised = call->act == ACT_ABORT;
	trainer->step = step;
	trainer->attempt = answer->attempt;
	trainer->micro_batch = answer->micro_batch;
}

static void trainer_took_grad(struct trainer *trainer, uint32_t unit, const struct answer *answer)
{
	uint64_t bytes = trainer->sim->workloads[trainer->model].units[unit].total * sizeof(float);
	trainer->has_slot[unit] = true;
	trainer->slots[unit] = answer->slot;
	node_slot_given(trainer->node, trainer->of->model, trainer->plan, answer->slot, bytes);
	if (trainer->state == TRAINER_LOADING) {
		bool compared = trainer->sim->workloads[trainer->model].options.init == INIT_VERIFY;
		fill_initial(trainer, unit, compared && trainer->other_values);
		trainer->other_values = trainer->other_values && bytes == 0;
	} else {
		fill_slot(trainer, unit);
	}
}

static void trainer_succeeded(struct trainer *trainer, struct trainer_call *call, const struct answer *answer)
{
	uint64_t step = trainer->step;
	uint32_t attempt = trainer->attempt, micro_batch = trainer->micro_batch;
	if (act_is_of_step(call->act)) {
		trainer_note(trainer, call, answer);
	}
	switch (call->act) {
	case ACT_GRAD:
		trainer_took_grad(trainer, call->unit, answer);
		break;
	case ACT_LOAD:
		trainer->has_slot[call->unit] = false;
		break;
	case ACT_UNSHARD:
		check_unsharded(trainer, call->unit, answer, call->step);
		break;
	case ACT_REDUCE:
		trainer->has_slot[call->unit] = false;
		oracle_contribute(trainer->of->oracle, step, attempt, micro_batch, trainer->node->rank, call->unit);
		break;
	case ACT_WEIGHT:
		oracle_weigh(trainer->of->oracle, answer->step, answer->attempt, answer->micro_batch,
			     trainer->node->rank, call->weight);
		tally_count(TALLY_EVENT, call->weight > 0 ? EVENT_WEIGHED : EVENT_WEIGHED_NOTHING);
		break;
	case ACT_SYNC:
		check_gradients(trainer);
		break;
	case ACT_ALL_REDUCE:
		check_all_reduce(trainer, answer);
		trainer->all_reduce++;
		break;
	case ACT_NORM:
		check_norm(trainer, call->kind, answer);
		break;
	case ACT_SHARD:
		check_shard(trainer, call->unit);
		break;
	case ACT_STEP:
		check_step(trainer, answer);
		break;
	case ACT_ABORT:
		trainer->todo = TODO_RESTART;
		break;
	default:
		break;
	}
}

static void trainer_failed(struct trainer *trainer, const struct trainer_call *call, const struct answer *answer)
{
	/* An abort that nobody decides yet changes nothing here: where it comes later, the trainer is told. */
	bool of_step = act_is_of_step(call->act) && call->act != ACT_ABORT;
	switch (answer->code) {
	case FSDP_E_LOST:
	case FSDP_E_DROPPED:
	case FSDP_E_STOPPED:
		trainer->todo = TODO_LEAVE;
		break;
	case FSDP_E_BUDGET:
		trainer->todo = trainer->todo == TODO_NOTHING ? TODO_ROOM : trainer->todo;
		break;
	case FSDP_E_IN_DOUBT:
		if (call->act != ACT_STEP) {
			trace_fail("rank %u: call %d is in doubt", trainer->node->rank, (int)call->act);
		}
		break; /* the script stands still: it steps again */
	case FSDP_E_ABORTED:
	case FSDP_E_TIMEOUT:
	case FSDP_E_MISMATCH:
	case FSDP_E_PEER_LOST:
		trainer->reload |=
			call->act == ACT_LOAD || (trainer->state == TRAINER_LOADING && answer->code == FSDP_E_MISMATCH);
		if (of_step && trainer->todo == TODO_NOTHING) {
			trainer->todo = TODO_RESTART;
			trainer->raised = true;
			trainer->attempt = answer->attempt;
			trainer->micro_batch = answer->micro_batch;
		}
		break;
	case FSDP_E_STATE:
		if (call->act == ACT_LOAD) { /* it is loaded already; the slot went back */
			trainer->has_slot[call->unit] = false;
			break;
		}
		if (call->act == ACT_ABORT) { /* it had voted, and the step is committed */
			break;
		}
		/* fall through */
	default:
		trace_fail("rank %u: call %d fails with %d: %s", trainer->node->rank, (int)call->act, answer->code,
			   answer->text);
	}
	if (of_step && answer->step != trainer->step && trainer->todo != TODO_LEAVE) {
		trace_fail("rank %u: call %d fails in step %llu, which the trainer has not begun", trainer->node->rank,
			   (int)call->act, (unsigned long long)answer->step);
	}
}

static void trainer_attach_done(struct trainer *trainer, const struct answer *answer)
{
	trainer->attach_code = answer->code;
	trainer->step = answer->step;
	trainer->attempt = answer->attempt;
	trainer->micro_batch = answer->micro_batch;
	if (answer->code == 0) {
		trainer->of = sim_life(trainer->sim, answer->model);
		if (!trainer->of) {
			trace_fail("rank %u is attached to model %llx, which no engine knows", trainer->node->rank,
				   (unsigned long long)answer->model);
		}
		if (answer->resumed) {
			tally_count(TALLY_EVENT, EVENT_RESUMED);
		}
		oracle_forget(trainer->of->oracle, trainer->step, trainer->attempt, trainer->node->rank);
	}
	trainer_turn_in(trainer, 0);
}

void trainer_answered(struct call *base, const struct answer *answer)
{
	struct trainer_call *call = (struct trainer_call *)base;
	struct trainer *trainer = call->trainer;
	if (!call->active) {
		trace_fail("rank %u: call %d is answered twice, or after its worker was detached", trainer->node->rank,
			   (int)call->act);
	}
	call->active = false;
	trace_note("rank # model # answer of # unit #: code -#, step # attempt # version #", trainer->node->rank,
		   trainer->model, call->act, call->unit, (uint64_t)-answer->code, answer->step, answer->attempt,
		   answer->version);
	if (answer->code != 0) {
		trace_text("  @", answer->text);
	}
	tally_count(TALLY_CODE, answer->code > -1000 ? (answer->code == 0 ? 0 : TALLY_INDEX_MAX - 1)
						     : (unsigned)(-answer->code - 1000));
	check_call(trainer, call, answer);
	if (call->act == ACT_ATTACH) {
		trainer_attach_done(trainer, answer);
		return;
	}
	if (call->act == ACT_CLOSE) {
		trainer_turn_later(trainer);
		return;
	}
	if (answer->code == 0 || check_floor(trainer, call, answer)) {
		trainer_succeeded(trainer, call, answer);
		trainer->next += call->waited;
		trainer_turn_soon(trainer);
	} else {
		trainer_failed(trainer, call, answer);
		/* A load that is done already stands for itself; what waits is tried again. */
		trainer_turn_later(trainer);
	}
}
