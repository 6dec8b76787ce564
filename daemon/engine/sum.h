/*
 * Adding: takes what collect.h keeps and adds it to the sums in order, divides after the last one, and reports when
 * every unit is done. At most one task a unit.
 */
#ifndef FSDPD_ENGINE_SUM_H
#define FSDPD_ENGINE_SUM_H

#include <stdbool.h>
#include <stdint.h>

#define SUM_BYTES_MAX (1u << 20)    /* of one sum that one task adds to */
#define SUM_FINISH_BYTES (4u << 20) /* that one task divides or zeroes */

struct contribution;
struct model;
struct outgoing;
struct unit;

struct collect_unit {
	struct contribution *first, *last;
	uint64_t cursor;       /* position: everything before it is added or absent */
	uint64_t completed;    /* contributions that are added whole */
	uint64_t divided_from; /* bytes: from here on the last addition divided; UINT64_MAX: nowhere */
	uint64_t finished;     /* bytes that were divided, or zeroed, in a pass of its own */
	bool adding, again, running, complete;
	bool finite; /* as far as it is divided */
};

void sum_continue(struct unit *unit); /* something of it arrived, or is known to be absent; adds what can be added */
void sum_check(struct model *model);  /* reports when everything is done */
uint8_t *sum_bad(const struct model *model); /* a byte a unit whose sum is not finite, heap; NULL where all are */

#endif
