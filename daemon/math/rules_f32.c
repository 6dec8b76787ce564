/* The rules for f32: each is a file that is read alone; here they get their type. Pure; any thread. */
#include "daemon/math/update.h"

#include <assert.h>
#include <math.h>

#define REAL float
#define REAL_SQRT sqrtf
#define RULE(name) name##_f32

#include "daemon/math/rule_adagrad.h"
#include "daemon/math/rule_adam.h"
#include "daemon/math/rule_lion.h"
#include "daemon/math/rule_rmsprop.h"
#include "daemon/math/rule_sgd.h"
