/*
 * charlm: a character language model, trained with its parameters, gradients and optimizer state sharded over the ranks
 * of an fsdpd group. Start it with fsdp-run, one process a rank. Rank 0 talks; the others only work.
 */
#include "client/examples/charlm/progress.h"
#include "client/examples/charlm/train.h"

#include <cblas.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arguments {
	const char *text, *write, *report, *halfway;
	uint64_t steps;
	unsigned alone;
	unsigned sample;
};

static const char usage[] =
	"usage: fsdp-run --nodes N -- charlm --text FILE [OPTION]...\n"
	"       charlm --compare FILE FILE\n"
	"\n"
	"  --text FILE      what to learn\n"
	"  --steps N        steps (default 400)\n"
	"  --alone RANKS    in a world of one: play so many ranks one after another, adding and dividing here\n"
	"  --write FILE     where rank 0 leaves the parameters\n"
	"  --report FILE    where rank 0 leaves the held-out bits per character before and after\n"
	"  --sample N       print N characters of the model's own\n"
	"  --halfway SHELL  a command that rank 0 runs in the middle\n"
	"  --compare A B    print the largest difference between two parameter files, and end\n";

static int fail(const char *what, int code)
{
	const char *story = fsdp_last_error();
	fprintf(stderr, "charlm: %s: %s\n", what, *story ? story : fsdp_strerror(code));
	return 1;
}

static int compare(const char *path_a, const char *path_b)
{
	FILE *a = fopen(path_a, "rb"), *b = fopen(path_b, "rb");
	float x, y;
	double most = 0.0;
	size_t count = 0, got_a, got_b = 1;
	if (!a || !b) {
		fprintf(stderr, "charlm: cannot open %s\n", a ? path_b : path_a);
		return 1;
	}
	while ((got_a = fread(&x, sizeof(x), 1, a)) + (got_b = fread(&y, sizeof(y), 1, b)) == 2) {
		double difference = fabs((double)x - (double)y);
		most = difference <= most ? most : difference; /* takes a NaN over */
		count++;
	}
	fclose(a);
	fclose(b);
	if (got_a != got_b || count == 0) {
		fprintf(stderr, "charlm: the files are of different sizes, or empty\n");
		return 1;
	}
	printf("%g\n", most);
	return 0;
}

static int train(struct trainer *trainer, const struct arguments *arguments, double *ret_last)
{
	struct progress progress;
	int talks = trainer->group.rank == 0, code = 0;
	uint64_t every = arguments->steps / 20 ? arguments->steps / 20 : 1;
	progress_begin(&progress, arguments->steps);
	for (uint64_t step = 0; step < arguments->steps && code == 0; step++) {
		double loss;
		code = trainer_step(trainer, step, arguments->steps, &loss);
		if (code < 0 || !talks)
			continue;
		/* Only rank 0 looks: a gather needs nobody else's call. */
		if ((step + 1) % every == 0 || step + 1 == arguments->steps) {
			code = trainer_held_out(trainer, ret_last);
			if (code == 0)
				code = fsdp_client_group(trainer->client, &trainer->group);
			progress_show(&progress, step + 1, loss, *ret_last,
				      trainer->group.bytes_in + trainer->group.bytes_out);
		}
		if (arguments->halfway && step + 1 == arguments->steps / 2 && system(arguments->halfway) != 0)
			fprintf(stderr, "charlm: the half-way command failed\n");
	}
	return code;
}

static int finish(struct trainer *trainer, const struct arguments *arguments, double first, double last)
{
	int code = 0;
	if (arguments->write && (code = trainer_write(trainer, arguments->write)) < 0)
		return code;
	if (arguments->report) {
		FILE *file = fopen(arguments->report, "w");
		if (!file || fprintf(file, "%.3f %.3f\n", first, last) < 0 || fclose(file) != 0)
			return -5;
	}
	if (arguments->sample) {
		static const char prompt[] = "And it came to pass, that ";
		char *sample = malloc(arguments->sample + 1);
		if (sample && (code = trainer_sample(trainer, prompt, arguments->sample, sample)) == 0)
			printf("\n%s%s\n\n", prompt, sample);
		free(sample);
	}
	return code;
}

static int run(const struct arguments *arguments)
{
	struct text text;
	static struct trainer trainer;
	double first = 0.0, last = 0.0;
	openblas_set_num_threads(1);
	if (text_read(&text, arguments->text) < 0)
		return 1;
	int code = trainer_begin(&trainer, &text, arguments->alone);
	if (code < 0)
		return fail("cannot begin", code);
	if (trainer.group.rank == 0 && (code = trainer_held_out(&trainer, &first)) < 0)
		return fail("cannot look at the held-out text", code);
	if ((code = train(&trainer, arguments, &last)) < 0)
		return fail("training ended", code);
	if (trainer.group.rank == 0 && (code = finish(&trainer, arguments, first, last)) < 0)
		return fail("cannot finish", code);
	trainer_end(&trainer);
	text_free(&text);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "text", required_argument, NULL, 't' },    { "steps", required_argument, NULL, 'n' },
		{ "alone", required_argument, NULL, 'a' },   { "write", required_argument, NULL, 'w' },
		{ "report", required_argument, NULL, 'r' },  { "sample", required_argument, NULL, 's' },
		{ "halfway", required_argument, NULL, 'm' }, { "compare", required_argument, NULL, 'c' },
		{ "help", no_argument, NULL, 'h' },          { 0 },
	};
	struct arguments arguments = { .steps = 400 };
	for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (option) {
		case 't':
			arguments.text = optarg;
			break;
		case 'n':
			arguments.steps = strtoull(optarg, NULL, 10);
			break;
		case 'a':
			arguments.alone = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 'w':
			arguments.write = optarg;
			break;
		case 'r':
			arguments.report = optarg;
			break;
		case 's':
			arguments.sample = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 'm':
			arguments.halfway = optarg;
			break;
		case 'c':
			return optind < argc ? compare(optarg, argv[optind]) : 2;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	if (!arguments.text || arguments.steps < 1 || arguments.alone > TRAIN_RANKS_MAX || arguments.sample > 100000) {
		fputs(usage, stderr);
		return 2;
	}
	return run(&arguments);
}
