/*
 * A trainer on strings: reads one command a line from stdin, does it with the library, and prints one line, the
 * command, its code and the story. For scripts that need a worker in the middle of something. One unit "u0" of four
 * floats.
 */
#include "fsdp/fsdp.h"

#include <stdio.h>
#include <string.h>

static struct fsdp_client *client;
static struct fsdp_model *model;
static struct fsdp_unit *unit;

static int do_open(const char *name)
{
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	options.optimizer = FSDP_OPTIMIZER_SGD;
	int code = client ? 0 : fsdp_client_open(NULL, &client);
	return code < 0 ? code : fsdp_model_open(client, name, &options, &model);
}

static int do_seal(const char *name)
{
	(void)name;
	struct fsdp_param param = { .name = "w", .dtype = FSDP_F32, .ndim = 1, .shape = { 4 } };
	int code = fsdp_unit_add(model, "u0", &param, 1, &unit);
	return code < 0 ? code : fsdp_model_seal(model, NULL);
}

static int do_load(const char *name)
{
	(void)name;
	const float values[4] = { 1, 2, 3, 4 };
	const void *list[1] = { values };
	return fsdp_unit_load(unit, list, 1);
}

static int do_reduce(const char *name)
{
	(void)name;
	void *grad;
	int code = fsdp_unit_grad(unit, 0, &grad);
	if (code < 0)
		return code;
	memcpy(grad, (const float[4]){ 1, 1, 1, 1 }, 4 * sizeof(float));
	return fsdp_unit_reduce(unit);
}

static int do_unshard(const char *name)
{
	(void)name;
	return fsdp_unit_unshard(unit);
}

static int do_reshard(const char *name)
{
	(void)name;
	return fsdp_unit_reshard(unit);
}

static int do_step(const char *name)
{
	(void)name;
	return fsdp_model_step(model, NULL, NULL);
}

static int do_keep(const char *name)
{
	(void)name;
	return fsdp_model_close(model, 1);
}

static int do_close(const char *name)
{
	(void)name;
	return fsdp_model_close(model, 0);
}

static const struct {
	const char *word;
	int (*run)(const char *name);
} commands[] = {
	{ "open", do_open },     { "seal", do_seal },       { "load", do_load },
	{ "reduce", do_reduce }, { "unshard", do_unshard }, { "reshard", do_reshard },
	{ "step", do_step },     { "keep", do_keep },       { "close", do_close },
};

int main(void)
{
	char line[256], word[32], name[200];
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		int count = sscanf(line, "%31s %199s", word, name);
		int code = FSDP_E_INVALID;
		if (count > 0 && strcmp(word, "quit") == 0)
			break;
		for (size_t i = 0; count > 0 && i < sizeof(commands) / sizeof(*commands); i++)
			if (strcmp(word, commands[i].word) == 0)
				code = commands[i].run(count > 1 ? name : "m");
		printf("%s %d %s\n", word, code, code < 0 ? fsdp_last_error() : "");
	}
	fsdp_client_close(client);
	return 0;
}
