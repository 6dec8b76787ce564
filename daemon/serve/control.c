/*
 * Control commands. One connection has one question at a time: while it is answered, nothing more is read from it. One
 * table says what each command needs and what its rows are; which row comes next is all that a connection keeps.
 */
#include "daemon/serve/control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runtime/log.h"
#include "daemon/serve/control_rows.h"
#include "daemon/serve/serve_state.h"
#include "daemon/serve/text.h"
#include "fsdp/error.h"
#include "proto/frame.h"

struct control_row {
	enum control_op op;
	const char *name;
	bool by_name; /* of a model */
	/* Either rows, from `position` on: fills the answer with at most `most`, and gives whether there are more... */
	int (*rows)(struct serve *serve, const char *name, uint32_t position, uint32_t most,
		    struct control_rows *ret_rows);
	/* ... or a call of the group. */
	void (*command)(struct group *group, const char *name, struct call *call);
};

static const struct control_row rows[] = {
	{ CONTROL_STATUS, "status", false, control_rows_status, NULL },
	{ CONTROL_PEERS, "peers", false, control_rows_peers, NULL },
	{ CONTROL_MODELS, "models", false, control_rows_models, NULL },
	{ CONTROL_UNITS, "units", true, control_rows_units, NULL },
	{ CONTROL_WORKERS, "workers", false, control_rows_workers, NULL },
	{ CONTROL_MODEL_DROP, "model drop", true, NULL, group_drop_model },
	{ CONTROL_STEP_ABORT, "step abort", true, NULL, group_abort_step },
};

struct control {
	struct call call; /* first */
	TAILQ_ENTRY(control) link;
	struct serve *serve;
	struct connection *connection;
	const struct control_row *row; /* of the question that is being answered; NULL: none */
	char name[FSDP_NAME_MAX + 1];
	uint32_t position;
	bool in_group;
};

static void end_question(struct control *control)
{
	control->row = NULL;
	connection_hold(control->connection, false);
}

/* false: it does not fit one record. */
static bool send_message(struct control *control, struct control_message *message)
{
	unsigned char data[FRAME_BYTES_MAX];
	long size;

	message->op = control->row->op;
	message->answer = true;
	message->protocol = CONTROL_PROTOCOL;
	size = control_message_write(message, data);
	if (size == FSDP_E_OVERFLOW)
		return false;
	if (size < 0)
		connection_break(control->connection, CONNECTION_FAULT);
	else
		connection_send(control->connection, data, (size_t)size, NULL, 0);
	return true;
}

static void answer_code(struct control *control, int code, const char *text)
{
	struct control_message message = { .code = code };

	text_copy(message.text, sizeof(message.text), text);
	send_message(control, &message);
	end_question(control);
}

/* Sends the next part; as many rows as fit a record. false: it was the last. */
static bool send_part(struct control *control)
{
	uint32_t most = CONTROL_ROWS_MAX;

	for (;;) {
		struct control_rows part = { 0 };
		int code = control->row->rows(control->serve, control->name, control->position, most, &part);
		uint32_t next = part.next;
		bool more = part.message.more, sent;

		if (code < 0) {
			answer_code(control, code, part.message.text);
			control_rows_fini(&part);
			return false;
		}
		sent = send_message(control, &part.message);
		control_rows_fini(&part);
		if (sent) {
			control->position = next;
			if (!more)
				end_question(control);
			return more;
		}
		if (most == 1) { /* no row of ours is that long */
			connection_break(control->connection, CONNECTION_FAULT);
			return false;
		}
		most /= 2;
	}
}

static void handle_drained(void *context)
{
	struct control *control = context;

	while (control->row && control->row->rows && connection_is_drained(control->connection)) {
		if (!send_part(control))
			break;
	}
}

static void handle_done(struct call *call, const struct answer *answer)
{
	struct control *control = (struct control *)call;

	control->in_group = false;
	log_event(LOG_LEVEL_NOTICE, "an operator's command",
		  "command=" LOG_QUOTED " model=" LOG_QUOTED " uid=%u code=%d text=" LOG_QUOTED, control->row->name,
		  control->name, (unsigned)connection_uid(control->connection), answer->code,
		  answer->code < 0 ? answer->text : "");
	answer_code(control, answer->code, answer->code < 0 ? answer->text : "");
}

static const struct control_row *find_row(enum control_op op)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].op == op)
			return &rows[i];
	}
	return NULL;
}

static void handle_record(void *context, const void *data, size_t size)
{
	struct control *control = context;
	const struct control_row *row;
	struct control_message question;
	int code = control_message_read(data, size, &question);

	if (code < 0) {
		connection_break(control->connection, code == -ENOMEM ? CONNECTION_FAULT : CONNECTION_MALFORMED);
		return;
	}
	row = question.answer ? NULL : find_row(question.op);
	text_copy(control->name, sizeof(control->name), question.name);
	if (!row) {
		connection_break(control->connection, CONNECTION_MALFORMED);
		control_message_fini(&question);
		return;
	}
	control->row = row;
	control->position = 0;
	connection_hold(control->connection, true);
	if (question.protocol != CONTROL_PROTOCOL) {
		char text[CONTROL_TEXT_MAX + 1];

		text_print(text, sizeof(text),
			   "the tool speaks version %u of the protocol, the daemon (%s) version %d: install the same "
			   "release of both",
			   question.protocol, FSDP_VERSION, CONTROL_PROTOCOL);
		answer_code(control, FSDP_E_PROTOCOL, text);
	} else if (row->by_name && !control->name[0]) {
		answer_code(control, FSDP_E_INVALID, "a model's name is needed");
	} else if (row->rows) {
		handle_drained(control);
	} else {
		control->in_group = true;
		control->call = (struct call){ .done = handle_done };
		row->command(control->serve->config.group, control->name, &control->call);
	}
	control_message_fini(&question);
}

static void control_free(struct control *control)
{
	if (control->in_group)
		call_cancel(control->serve->config.group, &control->call);
	TAILQ_REMOVE(&control->serve->controls, control, link);
	control->serve->control_count--;
	connection_free(control->connection);
	free(control);
}

static void handle_ended(void *context, enum connection_end end)
{
	struct control *control = context;

	if (end == CONNECTION_MALFORMED)
		control->serve->malformed++;
	if (end != CONNECTION_HANG_UP && end != CONNECTION_DEATH && serve_may_warn(control->serve))
		log_event(LOG_LEVEL_WARNING, "an operator's connection was dropped", "uid=%u why=" LOG_QUOTED,
			  (unsigned)connection_uid(control->connection), connection_end_text(end));
	control_free(control);
}

static const struct connection_owner control_owner = { .record = handle_record,
						       .drained = handle_drained,
						       .ended = handle_ended };

int control_new(struct serve *serve, int fd)
{
	struct control *control = calloc(1, sizeof(*control));
	int code;

	if (!control)
		return -ENOMEM;
	control->serve = serve;
	code = connection_new(serve->config.event, fd, &control_owner, control, &control->connection);
	if (code < 0) {
		free(control);
		return code;
	}
	TAILQ_INSERT_TAIL(&serve->controls, control, link);
	serve->control_count++;
	return 0;
}

void control_free_all(struct serve *serve)
{
	struct control *control;

	while ((control = TAILQ_FIRST(&serve->controls)))
		control_free(control);
}
