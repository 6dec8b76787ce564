/*
 * The update rules, one file each, in the order of operations of PyTorch 1.13, so that results agree with it. Pure.
 */
#ifndef FSDPD_MATH_OPTIMIZER_H
#define FSDPD_MATH_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum optimizer_kind {
	OPTIMIZER_NONE = 0,
	OPTIMIZER_SGD = 1,
	OPTIMIZER_ADAMW = 2,
	OPTIMIZER_ADAM = 3,
	OPTIMIZER_ADAGRAD = 4,
	OPTIMIZER_RMSPROP = 5,
	OPTIMIZER_LION = 6
};

/* What shapes the state: fixed at seal, part of the manifest. */
struct optimizer_spec {
	enum optimizer_kind kind;
	bool momentum; /* SGD, RMSprop: keeps a momentum buffer */
	bool nesterov; /* SGD: needs momentum */
	bool centered; /* RMSprop: keeps the mean of the gradient */
};

/* What may change every step; equal on every rank. */
struct optimizer_options {
	double learning_rate;
	double momentum;
	double dampening;
	double weight_decay; /* of the weight itself with AdamW and Lion, else added to the gradient */
	double beta1;
	double beta2;
	double epsilon;
	double alpha;               /* RMSprop: how much of the mean of squares stays */
	double learning_rate_decay; /* Adagrad */
	double initial_accumulator; /* Adagrad: looked at in the first update alone */
};

#define OPTIMIZER_MOMENTS_MAX 3

/* Vectors of the master's dtype, each as long as the shard, that this kind keeps: 0 to OPTIMIZER_MOMENTS_MAX. */
unsigned optimizer_moments(const struct optimizer_spec *spec);

/* PyTorch's names: of the k-th of these vectors ("exp_avg"), and of a kind ("adamw"); "?" for one that is none. */
const char *optimizer_moment_name(const struct optimizer_spec *spec, unsigned k);
const char *optimizer_name(enum optimizer_kind kind);

/* 0, or FSDP_E_INVALID with the reason in text (a static string): an unknown kind, a flag that the kind does not
 * know, Nesterov without momentum. ret_text may be NULL here and below, and is written only with FSDP_E_INVALID. */
int optimizer_check_spec(const struct optimizer_spec *spec, const char **ret_text);

/* The same for the options of a step; spec must be a checked one: not finite, negative learning rate, beta not in
 * [0,1), ... */
int optimizer_check(const struct optimizer_spec *spec, const struct optimizer_options *options, const char **ret_text);

/*
 * One update of count elements of one parameter. master and moments are changed in place, gradient is only read. step
 * is the number of this update of this parameter, from 1. moments[k] is NULL where the kind has fewer; they are zero
 * before step 1.
 */
void optimizer_step_f32(const struct optimizer_spec *spec, const struct optimizer_options *options, uint64_t step,
			float *master, const float *gradient, float *const moments[OPTIMIZER_MOMENTS_MAX],
			size_t count);
void optimizer_step_f64(const struct optimizer_spec *spec, const struct optimizer_options *options, uint64_t step,
			double *master, const double *gradient, double *const moments[OPTIMIZER_MOMENTS_MAX],
			size_t count);

#endif
