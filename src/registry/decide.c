// SPDX-License-Identifier: Apache-2.0
// Rows say what they CAN do, policy orders those that can, and both speak through one list of verdicts.
#include "registry/decide.h"

#include <stdio.h>
#include <string.h>

static const char failed_check[] = " failed its check at first use";

rdi_table rdi_table_built(void) {
    return (rdi_table){rdi_rows, rdi_row_count, false};
}

static bool has_trait(const char *name, const char *trait) {
    size_t bytes = strlen(trait);
    for (const char *at = name; bytes && at; at = strchr(at, '_')) {
        if (*at == '_') at++;
        if (!strncmp(at, trait, bytes) && (at[bytes] == '_' || !at[bytes])) return true;
    }
    return false;
}

// A row of the op for this device, of the order class if one is named; NULL: there is none.
static const rdi_row *row_of(rdi_table table, const rd_device *device, const rdi_query *query,
                             const char *order) {
    const rdi_row *rows = table.rows;
    for (int32_t i = 0; i < table.count; i++) {
        const rdi_row *row = rows + i;
        if (row->backend == rdi_device_backend(device) && !(row->isa & ~rdi_device_isa(device)) &&
            !strcmp(row->info.op, query->op->info.name) && (!order || !strcmp(row->info.order, order)))
            return row;
    }
    return NULL;
}

// The same among the rows that a check took out. Meant for what the table has no row of: then the build's is one of them.
static const rdi_row *row_out(rdi_table table, const rd_device *device, const rdi_query *query,
                              const char *order) {
    return table.rows_out ? row_of(rdi_table_built(), device, query, order) : NULL;
}

// The order class that the question insists on; NULL when it names none, or one that no row of this device was built with (the
// CPU's one class serves decode and prefill). *out: a row of the class when all that were built failed their check; the bits of
// another class are then no answer.
static const char *wanted_class(rdi_table table, const rd_device *device, const rdi_query *query,
                                const rdi_row **out) {
    const rdi_answer *order = rdi_query_find(query, "order");
    *out = NULL;
    if (!order || (strcmp(order->word, "step") != 0 && strcmp(order->word, "chunk") != 0)) return NULL;
    if (row_of(table, device, query, order->word)) return order->word;
    *out = row_out(table, device, query, order->word);
    return *out ? order->word : NULL;
}

static void judge(const rdi_row *row, const rd_device *device, const rdi_query *query,
                  const rdi_preference *preference, const char *order, const rdi_row *out,
                  rd_verdict *verdict) {
    *verdict = (rd_verdict){.kernel = &row->info};
    if (device->reference_only && !row->info.is_reference) {
        snprintf(verdict->reason, sizeof verdict->reason, "device=%s runs reference rows alone",
                 device->info.name);
        return;
    }
    if (row->isa & ~rdi_device_isa(device)) {
        bool cpu = rdi_device_backend(device) == RDI_BACKEND_CPU;
        const char *has = cpu ? RDI_ISA_TEXT(rdi_device_isa(device)) : device->info.arch;
        snprintf(verdict->reason, sizeof verdict->reason, "isa=%s, needs %s", *has ? has : "none",
                 row->info.isa);
        return;
    }
    if (order && strcmp(row->info.order, order) != 0 && strcmp(row->info.order, "any") != 0) {
        snprintf(verdict->reason, sizeof verdict->reason, "order=%s, its class is %s%s%s%s", order,
                 row->info.order, out ? "; " : "", out ? out->info.name : "", out ? failed_check : "");
        return;
    }
    char reason[RDI_REASON_BYTES];
    if (rdi_constraint_first_failure(row, query, reason)) {
        memcpy(verdict->reason, reason, sizeof reason);
        return;
    }
    if (preference->exclusive && !has_trait(row->info.name, preference->trait)) {
        snprintf(verdict->reason, sizeof verdict->reason, "%s: needs a %s kernel", preference->rule,
                 preference->trait);
        return;
    }
    verdict->ok = 1;
}

void rdi_decide(rdi_table table, const rd_device *device, const rdi_query *query,
                const rdi_preference *preference, rdi_verdicts *out) {
    const rdi_row *class_out;
    const char *order = wanted_class(table, device, query, &class_out);
    out->rows_out = table.rows_out;
    out->count = 0;
    // Two passes keep table order within the preferred rows and within the others.
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < table.count && out->count < RDI_OP_ROWS; i++) {
            const rdi_row *row = &table.rows[i];
            if (row->backend != rdi_device_backend(device) || strcmp(row->info.op, query->op->info.name) != 0)
                continue;
            bool preferred = has_trait(row->info.name, preference->trait);
            if (preferred != (pass == 0)) continue;
            out->rows[out->count] = row;
            judge(row, device, query, preference, order, class_out, &out->at[out->count++]);
        }
    }
    const char *rule = "row order";
    bool taken = false;
    for (int32_t i = 0; i < out->count; i++) {
        rd_verdict *verdict = &out->at[i];
        if (!verdict->ok) continue;
        verdict->chosen = !taken;
        if (taken) {
            snprintf(verdict->reason, sizeof verdict->reason, "ok, not chosen: %s", rule);
            continue;
        }
        if (has_trait(verdict->kernel->name, preference->trait)) rule = preference->rule;
        taken = true;
        snprintf(verdict->reason, sizeof verdict->reason, "ok");
    }
}

const rdi_row *rdi_verdicts_chosen(const rdi_verdicts *verdicts) {
    for (int32_t i = 0; i < verdicts->count; i++)
        if (verdicts->at[i].chosen) return verdicts->rows[i];
    return NULL;
}

static void join_reasons(const rdi_verdicts *verdicts, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = 0;
    for (int32_t i = 0; i < verdicts->count; i++) {
        bool seen = false;
        for (int32_t j = 0; j < i && !seen; j++)
            seen = !strcmp(verdicts->at[i].reason, verdicts->at[j].reason);
        if (seen || used >= bytes) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? "; " : "", verdicts->at[i].reason);
    }
}

void rdi_verdicts_reason(const rdi_verdicts *verdicts, const rdi_query *query, const rd_device *device,
                         char *text, size_t bytes) {
    const rdi_row *chosen = rdi_verdicts_chosen(verdicts);
    const rdi_row *out =
        verdicts->count ? NULL : row_out((rdi_table){.rows_out = verdicts->rows_out}, device, query, NULL);
    if (out) {
        snprintf(text, bytes, "%s%s", out->info.name, failed_check);
    } else if (!verdicts->count) {
        const char *absent = rdi_rows_absent(rdi_device_backend(device));
        snprintf(text, bytes, "no %s kernel for %s in this build%s%s%s", query->op->info.name,
                 device->info.backend, absent ? " (" : "", absent ? absent : "", absent ? ")" : "");
    } else if (!chosen) {
        join_reasons(verdicts, text, bytes);
    } else if (rdi_row_is_slow(chosen)) {
        snprintf(text, bytes, "slow: %s",
                 rdi_row_is_slow(verdicts->rows[0]) ? "no faster kernel in this build"
                                                    : verdicts->at[0].reason);
    } else {
        snprintf(text, bytes, "ok");
    }
}

int32_t rdi_cuts_add(int64_t cuts[RDI_PLAN_CUTS], int32_t count, int64_t lo, int64_t hi, int64_t cut) {
    if (cut <= lo || cut > hi || count >= RDI_PLAN_CUTS) return count;
    int32_t at = 0;
    while (at < count && cuts[at] < cut) at++;
    if (at < count && cuts[at] == cut) return count;
    memmove(cuts + at + 1, cuts + at, (size_t)(count - at) * sizeof cuts[0]);
    cuts[at] = cut;
    return count + 1;
}

// Smallest value of the interval key in [lo, hi + 1] at which the key's value reaches `bound` (values never fall as it
// grows); hi + 1 when it never does.
static int64_t first_reaching(const rdi_query *query, const char *key, int64_t lo, int64_t hi,
                              int64_t bound) {
    rdi_query at = *query;
    int64_t low = lo, high = hi + 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2, value = 0;
        rdi_query_bind(&at, query->op->info.interval_key, middle);
        if (!rdi_query_int(&at, key, &value)) return hi + 1;
        if (value >= bound)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

int32_t rdi_decide_cuts(rdi_table table, const rd_device *device, const rdi_query *query, int64_t lo,
                        int64_t hi, int64_t cuts[RDI_PLAN_CUTS]) {
    int32_t count = 0;
    for (int32_t i = 0; i < table.count; i++) {
        const rdi_row *row = &table.rows[i];
        if (row->backend != rdi_device_backend(device) || strcmp(row->info.op, query->op->info.name) != 0)
            continue;
        for (int32_t j = 0; j < row->info.constraint_count; j++) {
            const rd_constraint *constraint = &row->info.constraints[j];
            if (constraint->op == RD_MULTIPLE_OF || constraint->op == RD_ONE_OF)
                continue; // not on interval keys
            if (constraint->op != RD_LE)
                count = rdi_cuts_add(cuts, count, lo, hi,
                                     first_reaching(query, constraint->key, lo, hi, constraint->value));
            if (constraint->op != RD_GE)
                count = rdi_cuts_add(cuts, count, lo, hi,
                                     first_reaching(query, constraint->key, lo, hi, constraint->value + 1));
        }
    }
    return count;
}
