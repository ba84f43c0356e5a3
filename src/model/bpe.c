// SPDX-License-Identifier: Apache-2.0
// Merges of one word: the lowest rank first, leftmost among equals, until no pair merges.
//
// Words are a few bytes long, so short ones rescan an array; beyond that a heap over a linked list keeps a word of a
// million bytes at n log n.
#include "model/tokenizer.h"

#include <string.h>

enum { SHORT_WORD = 48 };

static void put(rdi_id_sink *sink, int32_t id) {
    if (sink->count < sink->capacity) sink->ids[sink->count] = id;
    sink->count++;
}

static size_t byte_ids(const rd_tokenizer *t, const char *word, size_t bytes, int32_t *ids) {
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        int32_t id = t->byte_id[(unsigned char)word[i]];
        if (id < 0) id = t->unknown_id;
        if (id >= 0) ids[count++] = id;
    }
    return count;
}

static void encode_short(const rd_tokenizer *t, int32_t *ids, size_t count, rdi_id_sink *sink) {
    const rdi_merge *merge[SHORT_WORD]; // of ids i and i + 1
    for (size_t i = 0; i + 1 < count; i++) merge[i] = rdi_merge_find(t, ids[i], ids[i + 1]);
    while (count > 1) {
        size_t best = count;
        for (size_t i = 0; i + 1 < count; i++)
            if (merge[i] && (best == count || merge[i]->rank < merge[best]->rank)) best = i;
        if (best == count) break;
        ids[best] = merge[best]->merged;
        count--;
        memmove(ids + best + 1, ids + best + 2, (count - best - 1) * sizeof *ids);
        if (best + 1 < count) {
            memmove(merge + best, merge + best + 1, (count - 1 - best) * sizeof *merge);
            merge[best] = rdi_merge_find(t, ids[best], ids[best + 1]);
        }
        if (best > 0) merge[best - 1] = rdi_merge_find(t, ids[best - 1], ids[best]);
    }
    for (size_t i = 0; i < count; i++) put(sink, ids[i]);
}

// ---- long words -------------------------------------------------------------------------------------------------------
typedef struct symbol {
    int32_t id, previous, next; // id -1: merged away; links -1: none
} symbol;
typedef struct candidate {
    int32_t rank, at, left, right; // stale when the ids at `at` have changed
} candidate;
typedef struct heap {
    candidate *item;
    size_t count;
} heap;

static bool before(const candidate *a, const candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void sift_down(heap *h, size_t at) {
    candidate moved = h->item[at];
    for (size_t child; (child = 2 * at + 1) < h->count; at = child) {
        if (child + 1 < h->count && before(&h->item[child + 1], &h->item[child])) child++;
        if (!before(&h->item[child], &moved)) break;
        h->item[at] = h->item[child];
    }
    h->item[at] = moved;
}

static void heap_push(heap *h, candidate added) {
    size_t at = h->count++;
    for (; at && before(&added, &h->item[(at - 1) / 2]); at = (at - 1) / 2)
        h->item[at] = h->item[(at - 1) / 2];
    h->item[at] = added;
}

static bool pair_at(const rd_tokenizer *t, const symbol *s, int32_t at, candidate *out) {
    int32_t next = at < 0 ? -1 : s[at].next;
    if (next < 0) return false;
    const rdi_merge *merge = rdi_merge_find(t, s[at].id, s[next].id);
    if (merge) *out = (candidate){merge->rank, at, s[at].id, s[next].id};
    return merge != NULL;
}

static void encode_long(const rd_tokenizer *t, symbol *s, size_t count, candidate *room, rdi_id_sink *sink) {
    heap h = {room, 0};
    candidate found;
    for (size_t i = 0; i < count; i++)
        if (pair_at(t, s, (int32_t)i, &found)) h.item[h.count++] = found;
    for (size_t i = h.count / 2; i-- > 0;) sift_down(&h, i);
    while (h.count) {
        candidate top = h.item[0];
        h.item[0] = h.item[--h.count];
        if (h.count) sift_down(&h, 0);
        int32_t at = top.at, next = s[at].next;
        if (s[at].id != top.left || next < 0 || s[next].id != top.right) continue;
        s[at].id = rdi_merge_find(t, top.left, top.right)->merged;
        s[next].id = -1;
        s[at].next = s[next].next;
        if (s[at].next >= 0) s[s[at].next].previous = at;
        if (pair_at(t, s, s[at].previous, &found)) heap_push(&h, found);
        if (pair_at(t, s, at, &found)) heap_push(&h, found);
    }
    for (int32_t at = 0; at >= 0; at = s[at].next) put(sink, s[at].id);
}

static void *scratch_room(rdi_bpe_scratch *scratch, size_t bytes) {
    if (scratch->bytes < bytes) {
        rdi_free(scratch->memory);
        scratch->memory = rdi_alloc(bytes);
        scratch->bytes = scratch->memory ? bytes : 0;
    }
    return scratch->memory;
}

rd_status rdi_bpe_encode(const rd_tokenizer *t, rdi_bpe_scratch *scratch, const char *word, size_t bytes,
                         rdi_id_sink *sink) {
    if (t->ignore_merges) {
        int32_t id = rdi_vocab_find(t, word, bytes);
        if (id >= 0 && t->token[id].kind == RDI_TOKEN_NORMAL) {
            put(sink, id);
            return RD_OK;
        }
    }
    if (bytes <= SHORT_WORD) {
        int32_t ids[SHORT_WORD];
        encode_short(t, ids, byte_ids(t, word, bytes, ids), sink);
        return RD_OK;
    }
    if (bytes > INT32_MAX / 2)
        return rdi_fail(RD_E_LIMIT, "tokenizer: a word of %zu bytes, needs under 1 GiB", bytes);
    // Every merge pops one candidate and pushes two at most: 2n entries suffice.
    symbol *s = scratch_room(scratch, bytes * (sizeof *s + 2 * sizeof(candidate) + sizeof(int32_t)));
    if (!s) return RD_E_NOMEM;
    candidate *room = (candidate *)(s + bytes);
    int32_t *ids = (int32_t *)(room + 2 * bytes);
    size_t count = byte_ids(t, word, bytes, ids);
    for (size_t i = 0; i < count; i++)
        s[i] = (symbol){ids[i], (int32_t)i - 1, i + 1 < count ? (int32_t)i + 1 : -1};
    if (count) encode_long(t, s, count, room, sink);
    return RD_OK;
}
