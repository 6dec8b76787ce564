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

static const char *optimizer_check_momentum(const struct optimizer_spec *spec, const struct optimizer_options *options)
{
	if (optimizer_is_bad(options->momentum)) {
		return "the momentum must be finite and not negative";
	}
	if (!spec->momentum && options->momentum != 0) {
		return "the model was sealed without a momentum buffer, so the momentum must be 0";
	}
	return NULL;
}

static const char *optimizer_check_sgd(const struct optimizer_spec *spec, const struct optimizer_options *options)
{
	const char *text = optimizer_check_momentum(spec, options);
	if (text) {
		return text;
	}
	if (!isfinite(options->dampening)) {
		return "the dampening must be finite";
	}
	if (spec->nesterov && (options->momentum == 0 || options->dampening != 0)) {
		return "Nesterov needs a momentum above 0 and a dampening of 0";
	}
	return optimizer_check_common(options);
}

static const char *optimizer_check_betas(const struct optimizer_options *options)
{
	if (!(options->beta1 >= 0 && options->beta1 < 1)) {
		return "beta1 must be at least 0 and below 1";
	}
	if (!(options->beta2 >= 0 && options->beta2 < 1)) {
		return "beta2 must be at least 0 and below 1";
	}
	return NULL;
}

static const char *optimizer_check_epsilon(const struct optimizer_options *options)
{
	return optimizer_is_bad(options->epsilon) ? "epsilon must be finite and not negative" : NULL;
}

/* Adam and AdamW. */
static const char *optimizer_check_adam(const struct optimizer_spec *spec, const struct optimizer_options *options)
{
	(void)spec;
	const char *text = optimizer_check_betas(options);
	text = text ? text : optimizer_check_epsilon(options);
	return text ? text : optimizer_check_common(options);
}

static const char *optimizer_check_adagrad(const struct optimizer_spec *spec, const struct optimizer_options *options)
{
	(void)spec;
	if (optimizer_is_bad(options->learning_rate_decay)) {
		return "the decay of the learning rate must be finite and not negative";
	}
	if (optimizer_is_bad(options->initial_accumulator)) {
		return "the initial accumulator must be finite and not negative";
	}
	const char *text = optimizer_check_epsilon(options);
	return text ? text : optimizer_check_common(options);
}

static const char *optimizer_check_rmsprop(const struct optimizer_spec *spec, const struct optimizer_options *options)
{
	if (!(options->alpha >= 0 && options->alpha <= 1)) {
		return "alpha must be at least 0 and at most 1";
	}
	const char *text = optimizer_check_momentum(spec, options);
	text = text ? text : optimizer_check_epsilon(options);
	return text ? text : optimizer_check_common(options);
}

static const char *optimizer_check_lion(const struct optimizer_spec *spec, const struct optimizer_options *options)
{
	(void)spec;
	const char *text = optimizer_check_betas(options);
	return text ? text : optimizer_check_common(options);
}

/* The flags of a spec; each one that a kind knows may add a vector to those that it always keeps. */
enum { KNOWS_MOMENTUM = 1, KNOWS_NESTEROV = 2, KNOWS_CENTERED = 4 };

static const struct optimizer_row {
	const char *name;
	optimizer_check_function *check;
	update_function_f32 *update_f32; /* NULL: nothing to do */
	update_function_f64 *update_f64;
	unsigned knows;
	unsigned moments; /* that are always there; the mean of a centered one and the momentum buffer follow */
	const char *moment_names[2];
} optimizer_rows[] = {
	[OPTIMIZER_NONE] = { "none", optimizer_check_none, NULL, NULL, 0, 0, { NULL } },
	[OPTIMIZER_SGD] = { "sgd",
			    optimizer_check_sgd,
			    sgd_update_f32,
			    sgd_update_f64,
			    KNOWS_MOMENTUM | KNOWS_NESTEROV,
			    0,
			    { NULL } },
	[OPTIMIZER_ADAMW] = { "adamw",
			      optimizer_check_adam,
			      adamw_update_f32,
			      adamw_update_f64,
			      0,
			      2,
			      { "exp_avg", "exp_avg_sq" } },
	[OPTIMIZER_ADAM] = { "adam",
			     optimizer_check_adam,
			     adam_update_f32,
			     adam_update_f64,
			     0,
			     2,
			     { "exp_avg", "exp_avg_sq" } },
	[OPTIMIZER_ADAGRAD] = { "adagrad",
				optimizer_check_adagrad,
				adagrad_update_f32,
				adagrad_update_f64,
				0,
				1,
				{ "sum" } },
	[OPTIMIZER_RMSPROP] = { "rmsprop",
				optimizer_check_rmsprop,
				rmsprop_update_f32,
				rmsprop_update_f64,
				KNOWS_MOMENTUM | KNOWS_CENTERED,
				1,
				{ "square_avg" } },
	[OPTIMIZER_LION] = { "lion", optimizer_check_lion, lion_update_f32, lion_update_f64, 0, 1, { "exp_avg" } },
};

#define OPTIMIZER_ROW_COUNT (sizeof(optimizer_rows) / sizeof(optimizer_rows[0]))

static const struct optimizer_row *optimizer_row(const struct optimizer_spec *spec)
{
	assert((size_t)spec->kind < OPTIMIZER_ROW_COUNT);
	return &optimizer_rows[spec->kind];
}

unsigned optimizer_moments(const struct optimizer_spec *spec)
{
	unsigned moments = optimizer_row(spec)->moments + (spec->centered ? 1 : 0) + (spec->momentum ? 1 : 0);
	assert(moments <= OPTIMIZER_MOMENTS_MAX);
	return moments;
}

const char *optimizer_moment_name(const struct optimizer_spec *spec, unsigned k)
{
	const struct optimizer_row *row = optimizer_row(spec);
	if (k < row->moments) {
		return row->moment_names[k];
	}
	if (k >= optimizer_moments(spec)) {
		return "?";
	}
	return spec->centered && k == row->moments ? "grad_avg" : "momentum_buffer";
}

const char *optimizer_name(enum optimizer_kind kind)
{
	return (size_t)kind < OPTIMIZER_ROW_COUNT ? optimizer_rows[kind].name : "?";
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
	unsigned knows = optimizer_row(spec)->knows;
	if (spec->momentum && !(knows & KNOWS_MOMENTUM)) {
		return optimizer_refuse("this optimizer keeps no momentum buffer", ret_text);
	}
	if (spec->nesterov && !(knows & KNOWS_NESTEROV)) {
		return optimizer_refuse("Nesterov is SGD's", ret_text);
	}
	if (spec->centered && !(knows & KNOWS_CENTERED)) {
		return optimizer_refuse("centered is RMSprop's", ret_text);
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
	if (row->update_f32 && count > 0) {
		row->update_f32(spec, options, step, master, gradient, moments, count);
	}
}

void optimizer_step_f64(const struct optimizer_spec *spec, const struct optimizer_options *options, uint64_t step,
			double *master, const double *gradient, double *const moments[OPTIMIZER_MOMENTS_MAX],
			size_t count)
{
	assert(step > 0);
	const struct optimizer_row *row = optimizer_row(spec);
	if (row->update_f64 && count > 0) {
		row->update_f64(spec, options, step, master, gradient, moments, count);
	}
}
