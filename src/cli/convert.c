// SPDX-License-Identifier: Apache-2.0
// radiance convert: a model to a block-FP8 folder, with a progress bar, errors per tensor, and a clean end on Ctrl-C.
#include "cli.h"

#include "radiance_run.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;
static void on_signal(int signal_number) {
    interrupted = signal_number;
}

typedef struct view {
    bool bar, json;
    int percent; // last drawn
    cJSON *tensors;
} view;

static int on_progress(void *state, const char *what, int64_t done, int64_t total) {
    view *v = state;
    int percent = total > 0 ? (int)(done * 100 / total) : 100;
    if (v->bar && percent != v->percent) {
        char marks[51];
        memset(marks, ' ', sizeof marks - 1);
        memset(marks, '#', (size_t)(percent / 2));
        marks[50] = 0;
        fprintf(stderr, "\r[%s] %3d%% %-46.46s", marks, percent, what);
        v->percent = percent;
    }
    return interrupted != 0;
}

static void on_report(void *state, const rd_convert_tensor_report *tensor) {
    view *v = state;
    if (v->json) {
        cJSON *object = cJSON_CreateObject();
        cli_json_text(object, "name", tensor->name);
        cli_json_real(object, "mean_abs_error", tensor->mean_abs_error);
        cli_json_real(object, "max_abs_error", tensor->max_abs_error);
        cli_json_real(object, "relative_error", tensor->relative_error);
        cJSON_AddItemToArray(v->tensors, object);
        return;
    }
    if (v->bar) fprintf(stderr, "\r%-104s\r", "");
    printf("%-56s mean %.3e  max %.3e  relative %.3e\n", tensor->name, tensor->mean_abs_error,
           tensor->max_abs_error, tensor->relative_error);
    v->percent = -1;
}

// The handlers last for the conversion alone: afterwards signals do what they did.
static rd_status convert(const char *in, const char *out, const rd_convert_options *options) {
    struct sigaction ours = {.sa_handler = on_signal}, old_int, old_term, old_hup, old_xfsz;
    sigaction(SIGINT, &ours, &old_int);
    sigaction(SIGTERM, &ours, &old_term);
    sigaction(SIGHUP, &ours, &old_hup);
    ours.sa_handler = SIG_IGN; // a file size limit is a write error like a full disk
    sigaction(SIGXFSZ, &ours, &old_xfsz);
    rd_status status = rd_convert(in, out, options);
    sigaction(SIGINT, &old_int, NULL);
    sigaction(SIGTERM, &old_term, NULL);
    sigaction(SIGHUP, &old_hup, NULL);
    sigaction(SIGXFSZ, &old_xfsz, NULL);
    return status;
}

rd_status cli_run_convert(int argc, char **argv) {
    const char *head = "bf16";
    bool verify = false, force = false, json = false;
    const cli_option options[] = {
        {"--head", CLI_TEXT, &head, "TYPE",
         "bf16, or fp8: the head too, as lm_head.weight (vLLM loads bf16 heads only)", 0, 0},
        {"--verify", CLI_FLAG, &verify, NULL, "print the error of each tensor", 0, 0},
        {"--force", CLI_FLAG, &force, NULL, "replace OUT if it is a model folder", 0, 0},
        CLI_OPTION_JSON(&json),
    };
    cli_args args;
    rd_status status = cli_parse(
        "convert IN OUT [options]",
        "Writes IN, a model folder or a .gguf file, as the model folder OUT with block-FP8 weights.\n"
        "OUT appears whole or not at all.",
        options, CLI_COUNT(options), 2, 2, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    if (strcmp(head, "bf16") != 0 && strcmp(head, "fp8") != 0)
        return cli_error(RD_E_INVALID, "--head=%s, needs bf16 or fp8", head);
    view v = {.bar = isatty(STDERR_FILENO) != 0,
              .json = json,
              .percent = -1,
              .tensors = json ? cJSON_CreateArray() : NULL};
    rd_convert_options convert_options = {
        .struct_size = sizeof convert_options,
        .head_fp8 = !strcmp(head, "fp8"),
        .overwrite = force,
        .progress = on_progress,
        .progress_state = &v,
        .report = verify ? on_report : NULL,
        .report_state = &v,
    };
    status = convert(args.items[0], args.items[1], &convert_options);
    if (v.bar) fprintf(stderr, "\r%-104s\r", "");
    if (status != RD_OK) {
        cJSON_Delete(v.tensors);
        return cli_fail(status);
    }
    if (!json) {
        printf("%s\n", args.items[1]);
        return RD_OK;
    }
    cJSON *object = cJSON_CreateObject();
    cli_json_text(object, "path", args.items[1]);
    cJSON_AddItemToObject(object, "tensors", v.tensors);
    return cli_print_json(object);
}
