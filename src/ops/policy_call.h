// SPDX-License-Identifier: Apache-2.0
// One evaluation of a policy rule by name: reads key=value inputs, writes text outputs. The rules themselves are the pure
// functions of src/policy; this is how the command line, the vectors and foreign languages reach them.
#ifndef RDI_POLICY_CALL_H
#define RDI_POLICY_CALL_H

#include "device/device.h"

enum { RDI_OUTPUT_BYTES = 64, RDI_RULE_BYTES = 128, RDI_LIST_MAX = 64 };

typedef struct rdi_policy_call {
    const rd_policy_info *info;
    const rd_device *device; // NULL = the rule's own card, r9700-gfx1201
    const rd_param *params;
    int32_t count;
    char (*outputs)[RDI_OUTPUT_BYTES];
    char *rule; // RDI_RULE_BYTES
} rdi_policy_call;

typedef struct rdi_policy_rule {
    rd_policy_info info;
    rd_status (*eval)(const rdi_policy_call *call);
} rdi_policy_rule;
const rdi_policy_rule *rdi_policy_rule_at(int32_t index); // policy_rules.c; NULL past the end

bool rdi_call_has(const rdi_policy_call *call, const char *key);
rd_status rdi_call_int(const rdi_policy_call *call, const char *key, int64_t least, int64_t *out);
rd_status rdi_call_flag(const rdi_policy_call *call, const char *key, bool *out);
rd_status rdi_call_real(const rdi_policy_call *call, const char *key, double least, double most, double *out);
rd_status rdi_call_word(const rdi_policy_call *call, const char *key, const char **out);
// Space separated; "" is the empty list. At most RDI_LIST_MAX.
rd_status rdi_call_ints(const rdi_policy_call *call, const char *key, int64_t *out, int64_t *count);
rd_status rdi_call_reals(const rdi_policy_call *call, const char *key, double least, double most, double *out,
                         int64_t *count);

void rdi_call_put_text(const rdi_policy_call *call, const char *output, const char *text);
void rdi_call_put_int(const rdi_policy_call *call, const char *output, int64_t value);
void rdi_call_put_kept(const rdi_policy_call *call, const char *output,
                       int64_t value); // negative = "", keeps
void rdi_call_put_rule(const rdi_policy_call *call, const char *rule);

#endif // RDI_POLICY_CALL_H
