/*
 * Chance from a seed. A struct dice is a stream that is drawn from in order (splitmix64); dice_hash is chance without
 * order, for values that must be the same whoever asks first.
 */
#ifndef TESTS_SIM_DICE_H
#define TESTS_SIM_DICE_H

#include <stdbool.h>
#include <stdint.h>

struct dice {
	uint64_t state;
};

static inline uint64_t dice_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

#define DICE_HASH_MAX 8
/* Of up to DICE_HASH_MAX numbers: dice_hash((uint64_t[]){ a, b }, 2). */
static inline uint64_t dice_hash(const uint64_t *numbers, unsigned count)
{
	uint64_t hash = count;
	for (unsigned i = 0; i < count; i++) {
		hash = dice_mix(hash ^ dice_mix(numbers[i] + i));
	}
	return hash;
}
#define DICE_HASH(...) \
	dice_hash((const uint64_t[]){ __VA_ARGS__ }, (unsigned)(sizeof((const uint64_t[]){ __VA_ARGS__ }) / 8))

static inline uint64_t dice_next(struct dice *dice)
{
	return dice_mix(dice->state++ * 0x2545f4914f6cdd1du);
}

static inline uint64_t dice_below(struct dice *dice, uint64_t limit) /* limit > 0 */
{
	return dice_next(dice) % limit;
}

static inline uint64_t dice_between(struct dice *dice, uint64_t least, uint64_t most) /* both may come */
{
	return least + dice_below(dice, most - least + 1);
}

static inline bool dice_chance(struct dice *dice, uint64_t of_a_thousand)
{
	return dice_below(dice, 1000) < of_a_thousand;
}

#endif
