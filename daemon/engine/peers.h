/*
 * The engine's links: who is welcome, and what becomes of the models' traffic when a link comes or goes.
 */
#ifndef FSDPD_ENGINE_PEERS_H
#define FSDPD_ENGINE_PEERS_H

#include "daemon/engine/core.h"

int peers_init(struct engine *engine);
void peers_fini(struct engine *engine);

void peers_command(struct engine *engine, const struct command *command); /* COMMAND_PEERS */
void peers_check_bulk(struct engine *engine); /* reports whose links are up, where that changed */
bool peers_reset(struct engine *engine); /* breaks the links that engine_reset_link named; whether there were any */

#endif
