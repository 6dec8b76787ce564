/*
 * The ZeroMQ transport does what every transport does. What only it has (hostile clients, descriptors, supervision) is in test_hostile.c.
 */
#include "zmq_pair.h"

#include <criterion/criterion.h>

#define CASE(name)                                                       \
	Test(zmq, name)                                                  \
	{                                                                \
		const char *why = conformance_##name(&zmq_pair_fixture); \
		cr_assert_null(why, "%s", why);                          \
	}
CONFORMANCE_CASES(CASE)
