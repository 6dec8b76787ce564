/* Runs one case by its name in this rank's trainer, or lists them. */
#include "tests/e2e/e2e.h"

#include <limits.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void e2e_fails(const char *file, int line, const char *what, int wanted, int got, const char *const *words)
{
	const char *story = fsdp_last_error();
	if (got != wanted) {
		fprintf(stderr, "%s:%d: %s gave %d (%s), not %d: %s\n", file, line, what, got, fsdp_strerror(got),
			wanted, got < 0 ? story : "");
		exit(1);
	}
	for (; *words; words++)
		if (!strstr(story, *words)) {
			fprintf(stderr, "%s:%d: %s: the story does not say \"%s\": %s\n", file, line, what, *words,
				story);
			exit(1);
		}
}

void e2e_open(struct e2e *e2e, const struct fsdp_options *options)
{
	e2e->unit_count = 0;
	DO(fsdp_model_open(e2e->client, "m", options, &e2e->model));
}

struct fsdp_unit *e2e_add_params(struct e2e *e2e, const char *name, const struct fsdp_param *params, size_t count)
{
	CHECK(e2e->unit_count < E2E_UNITS_MAX, "too many units in a test");
	struct fsdp_unit **unit = &e2e->units[e2e->unit_count++];
	DO(fsdp_unit_add(e2e->model, name, params, count, unit));
	return *unit;
}

struct fsdp_unit *e2e_add(struct e2e *e2e, const char *name, uint64_t count)
{
	struct fsdp_param param = { .name = "w", .dtype = FSDP_F32, .ndim = 1, .shape = { count } };
	return e2e_add_params(e2e, name, &param, 1);
}

void e2e_load(struct fsdp_unit *unit, const float *values)
{
	const void *list[1] = { values };
	DO(fsdp_unit_load(unit, list, 1));
}

struct fsdp_unit *e2e_vector(struct e2e *e2e, const struct fsdp_options *options, const float *values, uint64_t count)
{
	e2e_open(e2e, options);
	struct fsdp_unit *unit = e2e_add(e2e, "u0", count);
	DO(fsdp_model_seal(e2e->model, NULL));
	e2e_load(unit, values);
	return unit;
}

void e2e_close(struct e2e *e2e)
{
	DO(fsdp_model_close(e2e->model, 0));
	e2e->model = NULL;
}

void e2e_grad(struct fsdp_unit *unit, size_t index, const float *values, uint64_t count)
{
	void *grad;
	DO(fsdp_unit_grad(unit, index, &grad));
	for (uint64_t i = 0; i < count; i++) {
		CHECK(((float *)grad)[i] == 0.0f, "a fresh gradient buffer holds %g at %llu",
		      (double)((float *)grad)[i], (unsigned long long)i);
		((float *)grad)[i] = values[i];
	}
}

void e2e_reduce(struct fsdp_unit *unit, const float *values, uint64_t count)
{
	e2e_grad(unit, 0, values, count);
	DO(fsdp_unit_reduce(unit));
}

static void same(const char *what, const float *is, const float *should, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		CHECK(memcmp(&is[i], &should[i], sizeof(float)) == 0, "%s: element %llu is %.9g, not %.9g", what,
		      (unsigned long long)i, (double)is[i], (double)should[i]);
}

void e2e_full_is(struct fsdp_unit *unit, size_t index, const float *values, uint64_t count)
{
	DO(fsdp_unit_unshard(unit));
	same("full parameter", fsdp_unit_param(unit, index), values, count);
	DO(fsdp_unit_reshard(unit));
}

void e2e_shard_is(struct fsdp_unit *unit, const float *values, uint64_t count)
{
	struct fsdp_shard shard;
	DO(fsdp_unit_shard(unit, 0, &shard));
	CHECK(shard.count == count, "the shard has %llu elements, not %llu", (unsigned long long)shard.count,
	      (unsigned long long)count);
	same("shard", shard.parameter, values, count);
}

void e2e_gradient_is(struct fsdp_unit *unit, const float *values, uint64_t count)
{
	struct fsdp_shard shard;
	DO(fsdp_unit_shard(unit, 0, &shard));
	CHECK(shard.count == count, "the shard has %llu elements, not %llu", (unsigned long long)shard.count,
	      (unsigned long long)count);
	same("gradient", shard.gradient, values, count);
}

double e2e_seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void e2e_ask(const char *words, char *answer, size_t size, int *ret_code)
{
	char command[PATH_MAX + 256];
	const char *ctl = getenv("FSDP_TEST_CTL");
	CHECK(ctl, "FSDP_TEST_CTL is not set");
	snprintf(command, sizeof(command), "%s %s 2>&1", ctl, words);
	FILE *pipe = popen(command, "r");
	CHECK(pipe, "cannot run %s", command);
	size_t got = fread(answer, 1, size - 1, pipe);
	answer[got] = '\0';
	*ret_code = WEXITSTATUS(pclose(pipe));
}

void e2e_wait_for(const char *text)
{
	static char answer[65536];
	double began = e2e_seconds();
	int code;
	do {
		CHECK(e2e_seconds() - began < 20, "the status never said \"%s\": %s", text, answer);
		e2e_ask("status", answer, sizeof(answer), &code);
	} while (!strstr(answer, text));
}

void e2e_meet(struct e2e *e2e, const char *name)
{
	char folder[PATH_MAX - 64], path[PATH_MAX];
	snprintf(folder, sizeof(folder), "%s", getenv("FSDP_SOCKET"));
	strstr(folder, "/client.sock")[0] = '\0'; /* this rank's folder */
	strrchr(folder, '/')[0] = '\0';           /* the cluster's */
	for (unsigned rank = 0; rank <= e2e->world; rank++) {
		/* first our own mark, then everybody's */
		snprintf(path, sizeof(path), "%s/%u/%s", folder, rank ? rank - 1 : e2e->rank, name);
		if (rank == 0) {
			FILE *file = fopen(path, "w");
			CHECK(file, "cannot write %s", path);
			fclose(file);
			continue;
		}
		for (unsigned tries = 0; access(path, F_OK) != 0; tries++) {
			CHECK(tries < 60000, "rank %u never came to %s", rank - 1, name);
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
		}
	}
}

static const struct e2e_case *const groups[] = { e2e_original, e2e_order,     e2e_sizes,   e2e_steps,   e2e_rules,
						 e2e_numbers,  e2e_agreement, e2e_initial, e2e_failures };

static const struct e2e_case *find(const char *name)
{
	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++)
		for (const struct e2e_case *one = groups[i]; one->name; one++) {
			if (!name)
				printf("%s\n", one->name);
			else if (strcmp(one->name, name) == 0)
				return one;
		}
	return NULL;
}

int main(int argc, char **argv)
{
	struct e2e e2e = { 0 };
	struct fsdp_group group;
	const struct e2e_case *one = argc == 2 ? find(argv[1]) : NULL;
	if (!one) {
		find(NULL);
		return 2;
	}
	DO(fsdp_client_open(NULL, &e2e.client));
	DO(fsdp_client_group(e2e.client, &group));
	e2e.rank = group.rank;
	e2e.world = group.world_size;
	one->run(&e2e);
	if (e2e.model)
		e2e_close(&e2e);
	DO(fsdp_client_close(e2e.client));
	return 0;
}
