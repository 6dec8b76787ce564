/* What the group has to tell, as events of the log. */
#ifndef FSDPD_NOTICES_H
#define FSDPD_NOTICES_H

#include "daemon/group/group.h"

void notices_log(const struct notice *notice);

#endif
