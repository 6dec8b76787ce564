/* The update rules against numbers worked out by hand, and the options that make no sense. */
#include "daemon/math/optimizer.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "fsdp/error.h"

static const struct optimizer_spec plain = { .kind = OPTIMIZER_SGD };
static const struct optimizer_spec momentum = { .kind = OPTIMIZER_SGD, .momentum = true };
static const struct optimizer_spec nesterov = { .kind = OPTIMIZER_SGD, .momentum = true, .nesterov = true };
static const struct optimizer_spec adamw = { .kind = OPTIMIZER_ADAMW };
static const struct optimizer_spec adam = { .kind = OPTIMIZER_ADAM };
static const struct optimizer_spec adagrad = { .kind = OPTIMIZER_ADAGRAD };
static const struct optimizer_spec rmsprop = { .kind = OPTIMIZER_RMSPROP };
static const struct optimizer_spec rmsprop_full = { .kind = OPTIMIZER_RMSPROP, .momentum = true, .centered = true };
static const struct optimizer_spec lion = { .kind = OPTIMIZER_LION };
static const struct optimizer_options adamw_options = {
	.learning_rate = 0.1, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8
};

static void step(const struct optimizer_spec *spec, const struct optimizer_options *options, uint64_t number,
		 float *master, float gradient, float *moment0, float *moment1)
{
	float *const moments[OPTIMIZER_MOMENTS_MAX] = { moment0, moment1 };
	optimizer_step_f32(spec, options, number, master, &gradient, moments, 1);
}

Test(optimizer, keeps_as_many_moments_as_its_kind_needs)
{
	const struct optimizer_spec none = { .kind = OPTIMIZER_NONE };
	cr_assert_eq(optimizer_moments(&none), 0);
	cr_assert_eq(optimizer_moments(&plain), 0);
	cr_assert_eq(optimizer_moments(&momentum), 1);
	cr_assert_eq(optimizer_moments(&nesterov), 1);
	cr_assert_eq(optimizer_moments(&adamw), 2);
	cr_assert_eq(optimizer_moments(&adam), 2);
	cr_assert_eq(optimizer_moments(&adagrad), 1);
	cr_assert_eq(optimizer_moments(&rmsprop), 1);
	cr_assert_eq(optimizer_moments(&rmsprop_full), 3);
	cr_assert_eq(optimizer_moments(&lion), 1);
}

Test(optimizer, names_its_kinds_and_moments_as_pytorch_does)
{
	cr_assert_str_eq(optimizer_name(OPTIMIZER_NONE), "none");
	cr_assert_str_eq(optimizer_name(OPTIMIZER_RMSPROP), "rmsprop");
	cr_assert_str_eq(optimizer_name((enum optimizer_kind)7), "?");
	cr_assert_str_eq(optimizer_moment_name(&momentum, 0), "momentum_buffer");
	cr_assert_str_eq(optimizer_moment_name(&adamw, 1), "exp_avg_sq");
	cr_assert_str_eq(optimizer_moment_name(&rmsprop_full, 0), "square_avg");
	cr_assert_str_eq(optimizer_moment_name(&rmsprop_full, 1), "grad_avg");
	cr_assert_str_eq(optimizer_moment_name(&rmsprop_full, 2), "momentum_buffer");
	cr_assert_str_eq(optimizer_moment_name(&rmsprop, 1), "?");
	cr_assert_str_eq(optimizer_moment_name(&plain, 0), "?");
}

Test(optimizer, none_changes_nothing)
{
	const struct optimizer_spec none = { .kind = OPTIMIZER_NONE };
	float master = 3.0f;
	step(&none, &(struct optimizer_options){ .learning_rate = 1 }, 1, &master, 1.0f, NULL, NULL);
	cr_assert_eq(master, 3.0f);
}

Test(sgd, goes_down_the_gradient)
{
	float master = 1.0f;
	step(&plain, &(struct optimizer_options){ .learning_rate = 0.5 }, 1, &master, 2.0f, NULL, NULL);
	cr_assert_eq(master, 0.0f);
}

Test(sgd, adds_the_weight_decay_to_the_gradient)
{
	float master = 4.0f;
	step(&plain, &(struct optimizer_options){ .learning_rate = 0.5, .weight_decay = 0.25 }, 1, &master, 1.0f, NULL,
	     NULL);
	cr_assert_eq(master, 3.0f); /* d = 1 + 0.25 * 4 = 2 */
}

Test(sgd, momentum_starts_from_the_first_gradient_and_is_damped_afterwards)
{
	const struct optimizer_options options = { .learning_rate = 0.5, .momentum = 0.5, .dampening = 0.25 };
	float master = 0.0f, buffer = 77.0f; /* what lies in it before the first step does not count */
	step(&momentum, &options, 1, &master, 2.0f, &buffer, NULL);
	cr_assert_eq(buffer, 2.0f);
	cr_assert_eq(master, -1.0f);
	step(&momentum, &options, 2, &master, 4.0f, &buffer, NULL);
	cr_assert_eq(buffer, 4.0f); /* 0.5 * 2 + 0.75 * 4 */
	cr_assert_eq(master, -3.0f);
	step(&momentum, &options, 3, &master, 0.0f, &buffer, NULL);
	cr_assert_eq(buffer, 2.0f);
	cr_assert_eq(master, -4.0f);
}

Test(sgd, nesterov_looks_ahead)
{
	const struct optimizer_options options = { .learning_rate = 0.5, .momentum = 0.5 };
	float master = 0.0f, buffer = 0.0f;
	step(&nesterov, &options, 1, &master, 2.0f, &buffer, NULL);
	cr_assert_eq(buffer, 2.0f);
	cr_assert_eq(master, -1.5f); /* d = 2 + 0.5 * 2 */
	step(&nesterov, &options, 2, &master, 4.0f, &buffer, NULL);
	cr_assert_eq(buffer, 5.0f);
	cr_assert_eq(master, -4.75f); /* d = 4 + 0.5 * 5 = 6.5 */
}

Test(sgd, nesterov_with_decay)
{
	const struct optimizer_options options = { .learning_rate = 1, .momentum = 0.5, .weight_decay = 0.5 };
	float master = 2.0f, buffer = 0.0f;
	step(&nesterov, &options, 1, &master, 1.0f, &buffer, NULL);
	cr_assert_eq(buffer, 2.0f);
	cr_assert_eq(master, -1.0f); /* d = 2 + 0.5 * 2 = 3 */
	step(&nesterov, &options, 2, &master, 1.0f, &buffer, NULL);
	cr_assert_eq(buffer, 1.5f);   /* d = 1 - 0.5 = 0.5; 0.5 * 2 + 0.5 */
	cr_assert_eq(master, -2.25f); /* 0.5 + 0.75 = 1.25 */
}

Test(adamw, first_step_is_the_learning_rate)
{
	float master = 1.0f, m = 0.0f, v = 0.0f;
	step(&adamw, &adamw_options, 1, &master, 0.5f, &m, &v);
	cr_assert_float_eq(m, 0.05f, 1e-8);
	cr_assert_float_eq(v, 0.00025f, 1e-10);
	cr_assert(master >= nextafterf(0.9f, 0.0f) && master <= nextafterf(0.9f, 1.0f), "%.9g", (double)master);
}

Test(adamw, agrees_with_the_rule_in_double)
{
	const struct optimizer_options options = {
		.learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.1
	};
	float master = 1.5f, m = 0.0f, v = 0.0f;
	double p = 1.5, dm = 0, dv = 0;
	for (uint64_t t = 1; t <= 50; t++) {
		float gradient = t % 3 ? 0.25f : -1.0f;
		step(&adamw, &options, t, &master, gradient, &m, &v);
		p *= 1 - 0.01 * 0.1;
		dm = dm * 0.9 + 0.1 * gradient;
		dv = dv * 0.99 + 0.01 * gradient * gradient;
		p -= 0.01 / (1 - pow(0.9, (double)t)) * dm / (sqrt(dv) / sqrt(1 - pow(0.99, (double)t)) + 1e-6);
	}
	cr_assert_float_eq(master, p, 1e-5);
	cr_assert_float_eq(m, dm, 1e-6);
	cr_assert_float_eq(v, dv, 1e-6);
}

Test(adamw, decays_the_weight_and_not_the_gradient)
{
	struct optimizer_options options = adamw_options;
	options.learning_rate = 0.5;
	options.weight_decay = 0.5;
	float master = 4.0f, m = 0.0f, v = 0.0f;
	step(&adamw, &options, 1, &master, 0.0f, &m, &v);
	cr_assert_eq(master, 3.0f); /* 4 * (1 - 0.25) */
	cr_assert_eq(m, 0.0f);
	cr_assert_eq(v, 0.0f);
}

/* Ten steps over 61 elements, whole and cut as 2, 3 and 5 ranks would: the cut must not show. */
Test(adamw, is_bit_identical_however_the_vector_is_cut)
{
	enum { COUNT = 61 };
	static const size_t worlds[] = { 1, 2, 3, 5 };
	static float results[4][3][COUNT];
	for (size_t w = 0; w < 4; w++) {
		float *p = results[w][0], *m = results[w][1], *v = results[w][2];
		for (size_t i = 0; i < COUNT; i++) {
			p[i] = (float)i * 0.37f - 7.0f;
		}
		size_t share = (COUNT + worlds[w] - 1) / worlds[w];
		for (uint64_t t = 1; t <= 10; t++) {
			float g[COUNT];
			for (size_t i = 0; i < COUNT; i++) {
				g[i] = sinf((float)(i * t)) * 0.01f;
			}
			for (size_t begin = 0; begin < COUNT; begin += share) {
				size_t count = COUNT - begin < share ? COUNT - begin : share;
				float *const moments[OPTIMIZER_MOMENTS_MAX] = { m + begin, v + begin };
				optimizer_step_f32(&adamw, &adamw_options, t, p + begin, g + begin, moments, count);
			}
		}
		cr_assert_arr_eq(results[w], results[0], sizeof(results[0]));
	}
}

Test(adam, adds_the_weight_decay_to_the_gradient)
{
	struct optimizer_options options = adamw_options;
	options.weight_decay = 0.5;
	float master = 4.0f, m = 0.0f, v = 0.0f;
	step(&adam, &options, 1, &master, 0.0f, &m, &v);
	cr_assert_float_eq(m, 0.2f, 1e-7); /* 0.1 * (0 + 0.5 * 4) */
	cr_assert_float_eq(v, 0.004f, 1e-8);
	cr_assert_float_eq(master, 3.9f, 1e-6);
}

Test(adagrad, starts_from_the_initial_accumulator_and_slows_down)
{
	const struct optimizer_options options = {
		.learning_rate = 1, .learning_rate_decay = 1, .initial_accumulator = 12, .epsilon = 0
	};
	float master = 0.0f, sum = 77.0f; /* what lies in it before the first step does not count */
	step(&adagrad, &options, 1, &master, 2.0f, &sum, NULL);
	cr_assert_eq(sum, 16.0f);
	cr_assert_eq(master, -0.5f);
	step(&adagrad, &options, 2, &master, 3.0f, &sum, NULL);
	cr_assert_eq(sum, 25.0f);
	cr_assert_eq(master, -0.5f - 0.5f * 3.0f / 5.0f); /* the rate is 1 / 2 */
}

Test(rmsprop, divides_by_the_root_of_the_mean_of_squares)
{
	const struct optimizer_options options = { .learning_rate = 0.5, .alpha = 0.75, .epsilon = 1 };
	float master = 1.0f, square = 0.0f;
	step(&rmsprop, &options, 1, &master, 4.0f, &square, NULL);
	cr_assert_eq(square, 4.0f);
	cr_assert_eq(master, 1.0f - 0.5f * 4.0f / 3.0f);
}

Test(rmsprop, centered_takes_the_mean_away_and_momentum_adds_up)
{
	const struct optimizer_options options = { .learning_rate = 0.5, .alpha = 0.5, .momentum = 0.5 };
	float master = 0.0f, square = 0.0f, mean = 0.0f, buffer = 0.0f, gradient = 4.0f;
	float *const moments[OPTIMIZER_MOMENTS_MAX] = { &square, &mean, &buffer };
	optimizer_step_f32(&rmsprop_full, &options, 1, &master, &gradient, moments, 1);
	cr_assert_eq(square, 8.0f);
	cr_assert_eq(mean, 2.0f);
	cr_assert_eq(buffer, 2.0f); /* 4 / sqrt(8 - 4) */
	cr_assert_eq(master, -1.0f);
	gradient = 0.0f;
	optimizer_step_f32(&rmsprop_full, &options, 2, &master, &gradient, moments, 1);
	cr_assert_eq(buffer, 1.0f);
	cr_assert_eq(master, -1.5f);
}

Test(lion, goes_by_the_sign_alone)
{
	const struct optimizer_options options = { .learning_rate = 0.25, .beta1 = 0.5, .beta2 = 0.75 };
	float master = 1.0f, m = 0.0f;
	step(&lion, &options, 1, &master, 1e-6f, &m, NULL);
	cr_assert_eq(master, 0.75f);
	m = 8.0f;
	step(&lion, &options, 2, &master, -4.0f, &m, NULL);
	cr_assert_eq(master, 0.5f); /* 0.5 * 8 - 0.5 * 4 is above 0 */
	cr_assert_eq(m, 5.0f);      /* 0.75 * 8 - 0.25 * 4 */
	m = 4.0f;
	step(&lion, &options, 3, &master, -4.0f, &m, NULL);
	cr_assert_eq(master, 0.5f); /* sign(0) is 0 */
}

Test(optimizer, of_an_f64_master_rounds_in_f64)
{
	const struct optimizer_options options = {
		.learning_rate = 0.1, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8
	};
	double master = 1, gradient = 0.5, m = 0, v = 0;
	double *const moments[OPTIMIZER_MOMENTS_MAX] = { &m, &v };
	optimizer_step_f64(&adamw, &options, 1, &master, &gradient, moments, 1);
	cr_assert_float_eq(master, 0.900000002, 1e-15);
	cr_assert_eq(m, (1 - 0.9) * 0.5);
}

Test(optimizer, refuses_a_spec_that_makes_no_sense)
{
	const char *text = NULL;
	cr_assert_eq(optimizer_check_spec(&(struct optimizer_spec){ .kind = (enum optimizer_kind)7 }, &text),
		     FSDP_E_INVALID);
	cr_assert_str_eq(text, "there is no such optimizer");
	cr_assert_eq(optimizer_check_spec(&(struct optimizer_spec){ .kind = OPTIMIZER_SGD, .nesterov = true }, NULL),
		     FSDP_E_INVALID);
	cr_assert_eq(optimizer_check_spec(&(struct optimizer_spec){ .kind = OPTIMIZER_ADAMW, .momentum = true }, NULL),
		     FSDP_E_INVALID);
	cr_assert_eq(optimizer_check_spec(
			     &(struct optimizer_spec){ .kind = OPTIMIZER_RMSPROP, .momentum = true, .nesterov = true },
			     &text),
		     FSDP_E_INVALID);
	cr_assert_str_eq(text, "Nesterov is SGD's");
	cr_assert_eq(optimizer_check_spec(&(struct optimizer_spec){ .kind = OPTIMIZER_SGD, .centered = true }, &text),
		     FSDP_E_INVALID);
	cr_assert_str_eq(text, "centered is RMSprop's");
	cr_assert_eq(optimizer_check_spec(&nesterov, NULL), 0);
	cr_assert_eq(optimizer_check_spec(&adamw, NULL), 0);
}

Test(optimizer, seals_every_kind)
{
	const struct optimizer_spec *const specs[] = { &adam, &adagrad, &rmsprop, &rmsprop_full, &lion };
	for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
		cr_assert_eq(optimizer_check_spec(specs[i], NULL), 0);
	}
}

Test(optimizer, refuses_options_that_make_no_sense)
{
	const struct {
		const struct optimizer_spec *spec;
		struct optimizer_options options;
		const char *word; /* of the reason; NULL: they are good */
	} cases[] = {
		{ &plain, { .learning_rate = 0.1 }, NULL },
		{ &plain, { .learning_rate = 0 }, NULL },
		{ &plain, { .learning_rate = -0.1 }, "learning rate" },
		{ &plain, { .learning_rate = NAN }, "learning rate" },
		{ &plain, { .learning_rate = INFINITY }, "learning rate" },
		{ &plain, { .weight_decay = -1 }, "weight decay" },
		{ &plain, { .momentum = 0.9 }, "momentum buffer" },
		{ &momentum, { .momentum = 0.9, .dampening = 0.5 }, NULL },
		{ &momentum, { .momentum = -1 }, "momentum" },
		{ &momentum, { .momentum = 0.9, .dampening = NAN }, "dampening" },
		{ &nesterov, { .momentum = 0.9 }, NULL },
		{ &nesterov, { .momentum = 0.9, .dampening = 0.1 }, "Nesterov" },
		{ &nesterov, { .momentum = 0 }, "Nesterov" },
		{ &adamw, { .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8 }, NULL },
		{ &adamw, { .beta1 = 1, .beta2 = 0.999 }, "beta1" },
		{ &adamw, { .beta1 = 0.9, .beta2 = NAN }, "beta2" },
		{ &adamw, { .beta1 = 0.9, .beta2 = -0.1 }, "beta2" },
		{ &adamw, { .beta1 = 0.9, .beta2 = 0.9, .epsilon = -1 }, "epsilon" },
		{ &adam, { .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1 }, NULL },
		{ &adam, { .beta1 = -1, .beta2 = 0.999 }, "beta1" },
		{ &adam, { .weight_decay = NAN }, "weight decay" },
		{ &adagrad, { .learning_rate = 0.1, .learning_rate_decay = 0.1, .initial_accumulator = 1 }, NULL },
		{ &adagrad, { .learning_rate_decay = -0.1 }, "decay of the learning rate" },
		{ &adagrad, { .initial_accumulator = INFINITY }, "initial accumulator" },
		{ &adagrad, { .epsilon = NAN }, "epsilon" },
		{ &adagrad, { .learning_rate = -1 }, "learning rate" },
		{ &rmsprop, { .alpha = 0.99, .epsilon = 1e-8 }, NULL },
		{ &rmsprop, { .alpha = 1.5 }, "alpha" },
		{ &rmsprop, { .alpha = NAN }, "alpha" },
		{ &rmsprop, { .alpha = 0.99, .momentum = 0.9 }, "momentum buffer" },
		{ &rmsprop_full, { .alpha = 0.99, .momentum = 0.9 }, NULL },
		{ &rmsprop_full, { .alpha = 0.99, .momentum = NAN }, "momentum" },
		{ &rmsprop_full, { .alpha = 0.99, .epsilon = -1 }, "epsilon" },
		{ &lion, { .learning_rate = 1e-4, .beta1 = 0.9, .beta2 = 0.99 }, NULL },
		{ &lion, { .beta1 = 0.9, .beta2 = 1 }, "beta2" },
		{ &lion, { .learning_rate = NAN }, "learning rate" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *text = NULL;
		int code = optimizer_check(cases[i].spec, &cases[i].options, &text);
		cr_assert_eq(code, cases[i].word ? FSDP_E_INVALID : 0, "case %zu", i);
		cr_assert(cases[i].word ? text && strstr(text, cases[i].word) : !text, "case %zu: %s", i,
			  text ? text : "");
	}
}
