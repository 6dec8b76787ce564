/*
 * Which rule applies, and whether its options make sense. One row a kind; the arithmetic is in a file for each. Pure;
 * any thread.
 */
#include "daemon/math/optimizer.h"

#include <assert.h>
#include <math.h>

#include "daemon/math/update.h"
#include "fsdp/error.h"

typedef const char *optimizer_check_function(const struct optimizer_spec *spec,
					     const struct optimizer_options *options);

static const char *optimizer_check_none(const struct optimizer_spec *spec, const struct optimizer_options *options)
{
	(void)spec;
	(void)options; /* the trainer's own business */
	return NULL;
}

static bool optimizer_is_bad(double value)
{
	return !isfinite(value) || value < 0;
}

static const char *optimizer_check_common(const struct optimizer_options *options)
{
	if (optimizer_is_bad(options->learning_rate)) {
		return "the learning rate must be finite and not negative";
	}
	if (optimizer_is_bad(options->weight_decay)) {
		return "the weight decay must be finite and not negative";
	}
	return NULL;
}

static const char *optimizer_check_sgd(const struct optimizer_spec *spec, const struct optimizer_options *options)
{
	if (optimizer_is_bad(options->momentum)) {
		return "the momentum must be finite and not negative";
	}
	if (!isfinite(options->dampening)) {
		return "the dampening must be finite";
	}
	if (!spec->momentum && options->momentum != 0) {
		return "the model was sealed without a momentum buffer, so the momentum must be 0";
	}
	if (spec->nesterov && (options->momentum == 0 || options->dampening != 0)) {
		return "Nesterov needs a momentum above 0 and a dampening of 0";
	}
	return optimizer_check_common(options);
}

static const char *optimizer_check_adamw(const struct optimizer_spec *spec, const struct optimizer_options *options)
{
	(void)spec;
	if (!(options->beta1 >= 0 && options->beta1 < 1)) {
		return "beta1 must be at least 0 and below 1";
	}
	if (!(options->beta2 >= 0 && options->beta2 < 1)) {
		return "beta2 must be at least 0 and below 1";
	}
	if (optimizer_is_bad(options->epsilon)) {
		return "epsilon must be finite and not negative";
	}
	return optimizer_check_common(options);
}

static const struct optimizer_row {
	optimizer_check_function *check;
	update_function *update; /* NULL: nothing to do */
	unsigned moments;        /* without the momentum buffer of the spec */
	bool knows_momentum;
} optimizer_rows[] = {
	[OPTIMIZER_NONE] = { optimizer_check_none, NULL, 0, false },
	[OPTIMIZER_SGD] = { optimizer_check_sgd, sgd_update_f32, 0, true },
	[OPTIMIZER_ADAMW] = { optimizer_check_adamw, adamw_update_f32, 2, false },
};

#define OPTIMIZER_ROW_COUNT (sizeof(optimizer_rows) / sizeof(optimizer_rows[0]))

static const struct optimizer_row *optimizer_row(const struct optimizer_spec *spec)
{
	assert((size_t)spec->kind < OPTIMIZER_ROW_COUNT);
	return &optimizer_rows[spec->kind];
}

unsigned optimizer_moments(const struct optimizer_spec *spec)
{
	unsigned moments = optimizer_row(spec)->moments + (spec->momentum ? 1 : 0);
	assert(moments <= OPTIMIZER_MOMENTS_MAX);
	return moments;
}

static int optimizer_refuse(const char *text, const char **ret_text)
{
	if (!text) {
		return 0;
	}
	if (ret_text) {
		*ret_text = text;
	}
	return FSDP_E_INVALID;
}

int optimizer_check_spec(const struct optimizer_spec *spec, const char **ret_text)
{
	if ((size_t)spec->kind >= OPTIMIZER_ROW_COUNT) {
		return optimizer_refuse("there is no such optimizer", ret_text);
	}
	if ((spec->momentum || spec->nesterov) && !optimizer_row(spec)->knows_momentum) {
		return optimizer_refuse("momentum and Nesterov are SGD's", ret_text);
	}
	if (spec->nesterov && !spec->momentum) {
		return optimizer_refuse("Nesterov needs momentum", ret_text);
	}
	return 0;
}

int optimizer_check(const struct optimizer_spec *spec, const struct optimizer_options *options, const char **ret_text)
{
	return optimizer_refuse(optimizer_row(spec)->check(spec, options), ret_text);
}

void optimizer_step_f32(const struct optimizer_spec *spec, const struct optimizer_options *options, uint64_t step,
			float *master, const float *gradient, float *const moments[OPTIMIZER_MOMENTS_MAX], size_t count)
{
	assert(step > 0);
	const struct optimizer_row *row = optimizer_row(spec);
	if (row->update && count > 0) {
		row->update(spec, options, step, master, gradient, moments, count);
	}
}
