/* The commit of a step, with the optimizer in the daemon or outside. */
#ifndef FSDP_CLIENT_STEP_H
#define FSDP_CLIENT_STEP_H

struct fsdp_model;
struct fsdp_step;
struct fsdp_step_result;

/* As the daemon numbers them. */
enum step_commit_kind { STEP_COMMIT_OPTIMIZER = 0, STEP_COMMIT_STAGING = 1 };

/* step: hyper-parameters, not looked at in a commit from staging, and the state; NULL there: no state. model is sealed,
 * step was checked; ret_result may be NULL. The fault is set. */
int step_commit(struct fsdp_model *model, enum step_commit_kind kind, const struct fsdp_step *step,
		struct fsdp_step_result *ret_result, const char *what);

#endif
