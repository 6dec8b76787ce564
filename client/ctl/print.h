/* Two ways to print an answer: for people (text.c) and for programs (json.c). Each is one function a command. */
#ifndef FSDP_CTL_PRINT_H
#define FSDP_CTL_PRINT_H

#include "proto/control_message.h"

void text_status(const struct control_message *answer);
void text_peers(const struct control_message *answer);
void text_models(const struct control_message *answer);
void text_units(const struct control_message *answer);
void text_workers(const struct control_message *answer);
void text_done(const struct control_message *answer);

/* One JSON object on one line: {"code":0,"text":"", ...}. Numbers that may exceed 53 bits (incarnation, generation) are
 * strings of hexadecimal digits. */
void json_status(const struct control_message *answer);
void json_peers(const struct control_message *answer);
void json_models(const struct control_message *answer);
void json_units(const struct control_message *answer);
void json_workers(const struct control_message *answer);
void json_done(const struct control_message *answer);

#endif
