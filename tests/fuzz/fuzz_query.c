// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: hostile questions to explain, select, plans and policy rules. The input is lines of text, each
// "op key=value ..."; a value that reads as a number is one. Nothing may crash, leak, or answer with an unknown status.
#include "radiance.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_KEYS = 40, MOST_BYTES = 4096, ROWS = 64, OUTPUTS = 16 };

static int32_t read_params(char *text, rd_param *params) {
    int32_t count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, " ", &rest); word && count < MOST_KEYS;
         word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '='), *end;
        if (value) *value++ = 0;
        long long number = value ? strtoll(value, &end, 10) : 0;
        int is_number = value && *value && !*end;
        params[count++] =
            (rd_param){word, is_number ? RD_PARAM_INT : RD_PARAM_WORD, number, is_number ? NULL : value};
    }
    return count;
}

static void must(int holds) {
    if (!holds) abort();
}

static void ask(rd_ctx *ctx, char *line) {
    rd_param params[MOST_KEYS];
    char *op = line, *rest = strchr(line, ' ');
    if (rest) *rest++ = 0;
    int32_t count = rest ? read_params(rest, params) : 0;
    rd_verdict verdicts[ROWS];
    int32_t rows = ROWS;
    rd_status status = rd_kernel_explain(rd_ctx_device(ctx), op, params, count, verdicts, &rows);
    must(status == RD_OK || status == RD_E_INVALID);
    const rd_kernel_info *kernel = NULL;
    must(rd_kernel_select(ctx, op, params, count, &kernel) == status);
    // Select and explain are one decider.
    const rd_kernel_info *chosen = NULL;
    for (int32_t i = 0; status == RD_OK && i < rows; i++)
        if (verdicts[i].chosen) chosen = verdicts[i].kernel;
    must(kernel == chosen);
    must(status == RD_OK || *rd_error_text());
    rd_plan *plan = NULL;
    int64_t hi = count ? params[0].i : 17;
    status = rd_plan_create(ctx, op, params + (count > 0), count - (count > 0), count ? 1 : 0, hi, &plan);
    must(status == RD_OK || status == RD_E_INVALID || status == RD_E_UNSUPPORTED);
    must(status != RD_OK || hi == 0 || rd_plan_kernel(plan, hi));
    rd_plan_free(plan);
    char outputs[OUTPUTS][64], rule[128];
    status = rd_policy_eval(NULL, op, params, count, outputs, rule);
    must(status == RD_OK || status == RD_E_INVALID);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < 1 || bytes > MOST_BYTES) return 0;
    static const char *const devices[] = {"x86-avx512", "x86-avx2", "r9700-gfx1201", "h200-sm90a"};
    rd_ctx_options options = {.struct_size = sizeof options, .device = devices[data[0] % 4]};
    rd_ctx *ctx = NULL;
    if (rd_ctx_create(&options, &ctx) != RD_OK) return 0;
    char text[MOST_BYTES + 1], *rest = NULL;
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = 0;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) ask(ctx, line);
    size_t report_bytes = 0;
    must(rd_report_text(ctx, NULL, &report_bytes) == RD_OK);
    char *report = malloc(report_bytes);
    if (report)
        must(rd_report_text(ctx, report, &report_bytes) == RD_OK && strlen(report) + 1 == report_bytes);
    free(report);
    rd_ctx_free(ctx);
    return 0;
}
