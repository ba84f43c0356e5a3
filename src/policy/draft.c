// SPDX-License-Identifier: Apache-2.0
// Draft depth and its cap by batch size (from the original dispatcher's drafting module).
#include "policy/draft.h"

// Slot j decides on the product of the slots BEFORE it: its own token is already paid for when its confidence is known. An
// agreement with the n-gram ends the drafting at once and the tail of the continuation comes free, at the cap too.
rdi_draft rdi_draft_depth(const rdi_draft_question *q) {
    int64_t last = rdi_min(q->cap, q->token_count) - 1;
    double confidence = 1;
    for (int64_t slot = 0; slot <= last; slot++) {
        if (slot < q->continuation_count && q->continuation[slot] == q->tokens[slot])
            return (rdi_draft){slot, RDI_DRAFT_NGRAM,
                               "draft_depth: agrees with the n-gram, its tail is taken"};
        if (confidence < q->tau)
            return (rdi_draft){slot, RDI_DRAFT_STOP, "draft_depth: confidence product below tau"};
        confidence *= q->probabilities[slot];
    }
    return (rdi_draft){last, RDI_DRAFT_CAP, "draft_depth: cap"};
}

const char *rdi_draft_why_name(rdi_draft_why why) {
    static const char *const names[] = {"ngram", "stop", "cap"};
    return names[why];
}

// A larger batch fills the machine by itself, so each request drafts less. Sizes between two entries take the lower one's,
// sizes beyond the last take the last's.
int64_t rdi_draft_cap(int64_t batch, const char **rule) {
    static const struct {
        int64_t batch, cap;
        const char *rule;
    } caps[] = {{16, 4, "draft_cap: 16:4"},
                {8, 5, "draft_cap: 8:5"},
                {4, 6, "draft_cap: 4:6"},
                {2, 7, "draft_cap: 2:7"},
                {1, 8, "draft_cap: 1:8"}};
    size_t i = 0;
    while (i + 1 < RDI_COUNT(caps) && batch < caps[i].batch) i++;
    *rule = caps[i].rule;
    return caps[i].cap;
}
