/* The update rules, element by element, as PyTorch's documentation (Lion: its paper) writes them. Compiled without
 * contraction, as the daemon is. */
#include "tests/sim/oracle_rule.h"

#include <assert.h>
#include <math.h>

struct element {
	float value, gradient;
	float *moments[ORACLE_MOMENTS_MAX];
	double updates;
};

typedef float rule_function(const struct optimizer_spec *spec, const struct optimizer_options *options,
			    const struct element *element);

/* The gradient with the weight decay that is added to it. */
static float decayed(const struct optimizer_options *options, const struct element *element)
{
	if (options->weight_decay == 0) {
		return element->gradient;
	}
	return element->gradient + (float)options->weight_decay * element->value;
}

static float sgd(const struct optimizer_spec *spec, const struct optimizer_options *options,
		 const struct element *element)
{
	float d = decayed(options, element), momentum = (float)options->momentum;
	if (spec->momentum) {
		float *buffer = element->moments[0];
		*buffer = element->updates == 1 ? d : momentum * *buffer + (float)(1 - options->dampening) * d;
		d = spec->nesterov ? d + momentum * *buffer : *buffer;
	}
	return element->value - (float)options->learning_rate * d;
}

static float adam_from(const struct optimizer_options *options, const struct element *element, float value, float d)
{
	float *first = element->moments[0], *second = element->moments[1];
	float rate = (float)(options->learning_rate / (1 - pow(options->beta1, element->updates)));
	float root = (float)sqrt(1 - pow(options->beta2, element->updates));
	*first = *first * (float)options->beta1 + (float)(1 - options->beta1) * d;
	*second = *second * (float)options->beta2 + ((float)(1 - options->beta2) * d) * d;
	return value - (rate * *first) / (sqrtf(*second) / root + (float)options->epsilon);
}

static float adam(const struct optimizer_spec *spec, const struct optimizer_options *options,
		  const struct element *element)
{
	(void)spec;
	return adam_from(options, element, element->value, decayed(options, element));
}

static float adamw(const struct optimizer_spec *spec, const struct optimizer_options *options,
		   const struct element *element)
{
	(void)spec;
	float keep = (float)(1 - options->learning_rate * options->weight_decay);
	return adam_from(options, element, element->value * keep, element->gradient);
}

static float adagrad(const struct optimizer_spec *spec, const struct optimizer_options *options,
		     const struct element *element)
{
	float d = decayed(options, element), *sum = element->moments[0];
	float rate = (float)(options->learning_rate / (1 + (element->updates - 1) * options->learning_rate_decay));
	(void)spec;
	*sum = (element->updates == 1 ? (float)options->initial_accumulator : *sum) + d * d;
	return element->value - (rate * d) / (sqrtf(*sum) + (float)options->epsilon);
}

static float rmsprop(const struct optimizer_spec *spec, const struct optimizer_options *options,
		     const struct element *element)
{
	float d = decayed(options, element), alpha = (float)options->alpha, rest = (float)(1 - options->alpha);
	float rate = (float)options->learning_rate, *square = element->moments[0];
	unsigned next = 1;
	*square = *square * alpha + (rest * d) * d;
	float average = *square;
	if (spec->centered) {
		float *mean = element->moments[next++];
		*mean = *mean * alpha + rest * d;
		average = average - *mean * *mean;
	}
	average = sqrtf(average) + (float)options->epsilon;
	if (!spec->momentum || options->momentum == 0) {
		return element->value - (rate * d) / average;
	}
	float *buffer = element->moments[next];
	*buffer = *buffer * (float)options->momentum + d / average;
	return element->value - rate * *buffer;
}

static float lion(const struct optimizer_spec *spec, const struct optimizer_options *options,
		  const struct element *element)
{
	float *mean = element->moments[0];
	float u = *mean * (float)options->beta1 + (float)(1 - options->beta1) * element->gradient;
	float sign = u > 0 ? 1.0f : u < 0 ? -1.0f : 0.0f;
	float value = element->value * (float)(1 - options->learning_rate * options->weight_decay);
	(void)spec;
	*mean = *mean * (float)options->beta2 + (float)(1 - options->beta2) * element->gradient;
	return value - (float)options->learning_rate * sign;
}

void oracle_rule(const struct optimizer_spec *spec, const struct optimizer_options *options, uint64_t updates,
		 float *values, const float *gradient, float *const moments[ORACLE_MOMENTS_MAX], uint64_t count)
{
	static rule_function *const rules[] = {
		[OPTIMIZER_SGD] = sgd,         [OPTIMIZER_ADAMW] = adamw,     [OPTIMIZER_ADAM] = adam,
		[OPTIMIZER_ADAGRAD] = adagrad, [OPTIMIZER_RMSPROP] = rmsprop, [OPTIMIZER_LION] = lion,
	};
	assert(spec->kind < sizeof(rules) / sizeof(rules[0]) && rules[spec->kind]);
	for (uint64_t i = 0; i < count; i++) {
		struct element element = { .value = values[i], .gradient = gradient[i], .updates = (double)updates };
		for (unsigned k = 0; k < ORACLE_MOMENTS_MAX; k++) {
			element.moments[k] = &moments[k][i];
		}
		values[i] = rules[spec->kind](spec, options, &element);
	}
}
