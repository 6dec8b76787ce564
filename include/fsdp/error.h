/*
 * The codes that a call of this library, and every module behind it, may give.
 *
 * A call returns 0, or a negative code: system causes are -errno, ours start below -1000. One table yields the names,
 * the numbers and the texts, so that none of the three can drift from the others. A number never changes its meaning.
 */
#ifndef FSDP_ERROR_H
#define FSDP_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, number, what it means) */
#define FSDP_ERRORS(X)                                                                                                 \
	X(FSDP_E_INVALID, -1001, "an argument is out of its range")                                                    \
	X(FSDP_E_STATE, -1002, "the call does not fit the state of the model")                                         \
	X(FSDP_E_MISMATCH, -1003, "ranks disagree")                                                                    \
	X(FSDP_E_TIMEOUT, -1004, "the deadline passed")                                                                \
	X(FSDP_E_ABORTED, -1005, "the step was aborted; start it again")                                               \
	X(FSDP_E_PEER_LOST, -1006, "a peer was lost for longer than its grace")                                        \
	X(FSDP_E_LOST, -1007, "a rank lost its shards of the model")                                                   \
	X(FSDP_E_IN_DOUBT, -1008, "this rank voted and the coordinator cannot be reached")                             \
	X(FSDP_E_BUDGET, -1009, "a memory budget does not allow it")                                                   \
	X(FSDP_E_PROTOCOL, -1010, "a message is malformed or of a version that is not spoken")                         \
	X(FSDP_E_UNREACHABLE, -1011, "the daemon cannot be reached")                                                   \
	X(FSDP_E_OVERFLOW, -1012, "a size exceeds its limit")                                                          \
	X(FSDP_E_NOT_FOUND, -1013, "there is nothing of that name")                                                    \
	X(FSDP_E_BUSY, -1014, "it is in use by somebody else")                                                         \
	X(FSDP_E_DTYPE, -1015, "the dtype is not supported here")                                                      \
	X(FSDP_E_FORKED, -1016, "the handle belongs to the parent process")                                            \
	X(FSDP_E_CONFIG, -1017, "the configuration is wrong")                                                          \
	X(FSDP_E_STALE, -1018, "the answer belongs to an older version")                                               \
	X(FSDP_E_DROPPED, -1019, "the model was dropped")                                                              \
	X(FSDP_E_STOPPED, -1020, "the daemon is leaving")

enum fsdp_error {
	FSDP_OK = 0,
#define FSDP_ERROR_ENUM(name, number, text) name = number,
	FSDP_ERRORS(FSDP_ERROR_ENUM)
#undef FSDP_ERROR_ENUM
};

#ifdef __cplusplus
}
#endif

#endif
