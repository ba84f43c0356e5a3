// SPDX-License-Identifier: Apache-2.0
// Inputs and outputs of rules by name, and the public entries.
#include "ops/policy_call.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const rd_param *find(const rdi_policy_call *call, const char *key) {
    for (int32_t i = 0; i < call->count; i++)
        if (!strcmp(call->params[i].key, key)) return &call->params[i];
    return NULL;
}

static rd_status need(const rdi_policy_call *call, const char *key, const rd_param **out) {
    *out = find(call, key);
    return *out ? RD_OK : rdi_fail(RD_E_INVALID, "%s: %s not given", call->info->name, key);
}

bool rdi_call_has(const rdi_policy_call *call, const char *key) {
    return find(call, key) != NULL;
}

rd_status rdi_call_int(const rdi_policy_call *call, const char *key, int64_t least, int64_t *out) {
    const rd_param *param;
    RDI_TRY(need(call, key, &param));
    if (param->kind != RD_PARAM_INT)
        return rdi_fail(RD_E_INVALID, "%s: %s=\"%.40s\" is text, needs a whole number", call->info->name, key,
                        param->word ? param->word : "");
    if (param->i < least || param->i > INT32_MAX)
        return rdi_fail(RD_E_INVALID, "%s: %s=%lld, needs %lld to %d", call->info->name, key,
                        (long long)param->i, (long long)least, INT32_MAX);
    *out = param->i;
    return RD_OK;
}

rd_status rdi_call_flag(const rdi_policy_call *call, const char *key, bool *out) {
    int64_t value = 0;
    RDI_TRY(rdi_call_int(call, key, 0, &value));
    if (value > 1)
        return rdi_fail(RD_E_INVALID, "%s: %s=%lld, needs 0 or 1", call->info->name, key, (long long)value);
    *out = value == 1;
    return RD_OK;
}

rd_status rdi_call_word(const rdi_policy_call *call, const char *key, const char **out) {
    const rd_param *param;
    RDI_TRY(need(call, key, &param));
    if (param->kind != RD_PARAM_WORD || !param->word)
        return rdi_fail(RD_E_INVALID, "%s: %s=%lld is a number, needs a word", call->info->name, key,
                        (long long)param->i);
    *out = param->word;
    return RD_OK;
}

rd_status rdi_call_reals(const rdi_policy_call *call, const char *key, double least, double most, double *out,
                         int64_t *count) {
    const rd_param *param;
    RDI_TRY(need(call, key, &param));
    char one[32];
    snprintf(one, sizeof one, "%lld", (long long)param->i);
    const char *at = param->kind == RD_PARAM_INT ? one : param->word ? param->word : "";
    *count = 0;
    for (at += strspn(at, " "); *at; at += strspn(at, " ")) {
        char *end;
        double value = strtod(at, &end);
        if (end == at || (*end && *end != ' ') || !(value >= least && value <= most))
            return rdi_fail(RD_E_INVALID, "%s: %s: \"%.40s\", needs numbers from %g to %g", call->info->name,
                            key, at, least, most);
        if (*count == RDI_LIST_MAX)
            return rdi_fail(RD_E_INVALID, "%s: %s has more than %d items", call->info->name, key,
                            RDI_LIST_MAX);
        out[(*count)++] = value;
        at = end;
    }
    return RD_OK;
}

rd_status rdi_call_real(const rdi_policy_call *call, const char *key, double least, double most,
                        double *out) {
    double values[RDI_LIST_MAX];
    int64_t count;
    RDI_TRY(rdi_call_reals(call, key, least, most, values, &count));
    if (count != 1)
        return rdi_fail(RD_E_INVALID, "%s: %s has %lld numbers, needs 1", call->info->name, key,
                        (long long)count);
    *out = values[0];
    return RD_OK;
}

rd_status rdi_call_ints(const rdi_policy_call *call, const char *key, int64_t *out, int64_t *count) {
    double values[RDI_LIST_MAX];
    RDI_TRY(rdi_call_reals(call, key, INT32_MIN, INT32_MAX, values, count));
    for (int64_t i = 0; i < *count; i++) {
        if (values[i] != floor(values[i]))
            return rdi_fail(RD_E_INVALID, "%s: %s: %g, needs whole numbers", call->info->name, key,
                            values[i]);
        out[i] = (int64_t)values[i];
    }
    return RD_OK;
}

void rdi_call_put_text(const rdi_policy_call *call, const char *output, const char *text) {
    for (int32_t i = 0; i < call->info->output_count; i++)
        if (!strcmp(call->info->outputs[i], output)) snprintf(call->outputs[i], RDI_OUTPUT_BYTES, "%s", text);
}

void rdi_call_put_int(const rdi_policy_call *call, const char *output, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    rdi_call_put_text(call, output, text);
}

void rdi_call_put_kept(const rdi_policy_call *call, const char *output, int64_t value) {
    if (value >= 0) rdi_call_put_int(call, output, value);
}

void rdi_call_put_rule(const rdi_policy_call *call, const char *rule) {
    snprintf(call->rule, RDI_RULE_BYTES, "%s", rule);
}

// ---- public ---------------------------------------------------------------------------------------------------------------
const rd_policy_info *rd_policy_at(int32_t index) {
    const rdi_policy_rule *rule = rdi_policy_rule_at(index);
    return rule ? &rule->info : NULL;
}

static const rdi_policy_rule *find_rule(const char *name) {
    // The edge cases of one rule have their own vector file.
    if (!strcmp(name, "decode_geometry_edges")) name = "decode_geometry";
    for (int32_t i = 0; rdi_policy_rule_at(i); i++)
        if (!strcmp(rdi_policy_rule_at(i)->info.name, name)) return rdi_policy_rule_at(i);
    return NULL;
}

const rd_policy_info *rd_policy_find(const char *name) {
    const rdi_policy_rule *rule = name ? find_rule(name) : NULL;
    return rule ? &rule->info : NULL;
}

static rd_status unknown_rule(const char *name) {
    char names[512] = "";
    for (int32_t i = 0; rdi_policy_rule_at(i); i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? " " : "", rdi_policy_rule_at(i)->info.name);
    }
    return rdi_fail(RD_E_INVALID, "unknown rule %.40s, known: %s", name ? name : "\"\"", names);
}

static rd_status check_keys(const rd_policy_info *info, const rd_param *params, int32_t count) {
    char names[512] = "";
    for (int32_t i = 0; i < info->input_count; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? " " : "", info->inputs[i]);
    }
    if (count < 0 || (count > 0 && !params))
        return rdi_fail(RD_E_INVALID, "%s: params=NULL with count=%d", info->name, count);
    for (int32_t i = 0; i < count; i++) {
        bool known = false;
        if (!params[i].key) return rdi_fail(RD_E_INVALID, "%s: params[%d] has no key", info->name, i);
        for (int32_t j = 0; j < info->input_count && !known; j++)
            known = !strcmp(info->inputs[j], params[i].key);
        if (!known)
            return rdi_fail(RD_E_INVALID, "%s: unknown key %.40s, the rule has: %s", info->name,
                            params[i].key, names);
        for (int32_t j = 0; j < i; j++)
            if (!strcmp(params[j].key, params[i].key))
                return rdi_fail(RD_E_INVALID, "%s: %s is given twice", info->name, params[i].key);
    }
    return RD_OK;
}

rd_status rd_policy_eval(const rd_device *device, const char *rule_name, const rd_param *params,
                         int32_t count, char (*outputs)[64], char rule_fired[128]) {
    const rdi_policy_rule *rule = rule_name ? find_rule(rule_name) : NULL;
    if (!rule) return unknown_rule(rule_name);
    if (!outputs || !rule_fired)
        return rdi_fail(RD_E_INVALID, "rd_policy_eval: %s=NULL", outputs ? "rule_fired" : "outputs");
    RDI_TRY(check_keys(&rule->info, params, count));
    for (int32_t i = 0; i < rule->info.output_count; i++) outputs[i][0] = 0;
    rule_fired[0] = 0;
    rdi_policy_call call = {&rule->info, device, params, count, outputs, rule_fired};
    return rule->eval(&call);
}
