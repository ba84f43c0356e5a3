// SPDX-License-Identifier: Apache-2.0
// Tokens, their lookup by bytes, merges by pair, and the trie of added tokens.
#include "model/tokenizer.h"

#include <string.h>

enum { MAX_TOKENS = 1 << 24 };

// GPT-2's byte alphabet: printable Latin-1 bytes stand for themselves, the other 68 take U+0100.. in order.
static bool stands_for_itself(int byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

typedef struct alphabet {
    uint16_t code[256];           // of a byte
    int16_t byte[RDI_BYTE_CODES]; // of a code, -1: none
} alphabet;

static alphabet make_alphabet(void) {
    alphabet a;
    memset(a.byte, 0xff, sizeof a.byte);
    uint16_t next = 256;
    for (int byte = 0; byte < 256; byte++) {
        a.code[byte] = stands_for_itself(byte) ? (uint16_t)byte : next++;
        a.byte[a.code[byte]] = (int16_t)byte;
    }
    return a;
}

size_t rdi_byte_alphabet_encode(const char *bytes, size_t count, char *out) {
    alphabet a = make_alphabet();
    char *at = out;
    for (size_t i = 0; i < count; i++) {
        unsigned code = a.code[(unsigned char)bytes[i]];
        if (code < 0x80) {
            *at++ = (char)code;
        } else {
            *at++ = (char)(0xc0 | code >> 6);
            *at++ = (char)(0x80 | (code & 63));
        }
    }
    return (size_t)(at - out);
}

// Bytes that `text` stands for; false when a character is outside the alphabet. out holds `count` bytes.
static bool alphabet_decode(const int16_t byte_of[RDI_BYTE_CODES], const char *text, size_t count, char *out,
                            uint32_t *bytes) {
    const uint8_t *at = (const uint8_t *)text, *end = at + count;
    char *to = out;
    while (at < end) {
        unsigned code = *at++;
        if (code >= 0x80) {
            if (code > 0xc5 || at == end) return false; // two-byte characters up to U+017f
            code = (code & 31) << 6 | (*at++ & 63);
        }
        if (code >= RDI_BYTE_CODES || byte_of[code] < 0) return false;
        *to++ = (char)byte_of[code];
    }
    *bytes = (uint32_t)(to - out);
    return true;
}

rd_status rdi_vocab_create(rd_tokenizer *t, int64_t count) {
    if (count < 1 || count > MAX_TOKENS)
        return rdi_fail(RD_E_FORMAT, "tokenizer: %lld tokens, needs 1 to %d", (long long)count, MAX_TOKENS);
    alphabet a = make_alphabet();
    memcpy(t->byte_of_code, a.byte, sizeof a.byte);
    t->token = rdi_arena_alloc(&t->arena, (size_t)count * sizeof *t->token);
    t->vocab = (int32_t)count;
    return t->token ? RD_OK : RD_E_NOMEM;
}

rd_status rdi_vocab_set(rd_tokenizer *t, int64_t id, const char *text, size_t bytes, rdi_token_kind kind) {
    if (id < 0 || id >= t->vocab)
        return rdi_fail(RD_E_FORMAT, "tokenizer: token id=%lld, needs 0 to %d", (long long)id, t->vocab - 1);
    if (bytes > UINT16_MAX)
        return rdi_fail(RD_E_FORMAT, "tokenizer: token %lld of %zu bytes, needs at most 65535", (long long)id,
                        bytes);
    char *copy = rdi_arena_alloc(&t->arena, bytes + 1);
    if (!copy) return RD_E_NOMEM;
    rdi_token *token = &t->token[id];
    token->byte_count = (uint32_t)bytes;
    if (kind != RDI_TOKEN_NORMAL ||
        !alphabet_decode(t->byte_of_code, text, bytes, copy, &token->byte_count)) {
        if (bytes) memcpy(copy, text, bytes);
        token->byte_count = (uint32_t)bytes;
    }
    token->bytes = copy;
    token->kind = (uint8_t)kind;
    return RD_OK;
}

// ---- lookup ---------------------------------------------------------------------------------------------------------
static uint32_t hash_bytes(const char *bytes, size_t count) {
    uint64_t hash = 0xcbf29ce484222325u; // FNV-1a, then a final mix: low bits index the table
    for (size_t i = 0; i < count; i++) hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    return (uint32_t)(hash ^ hash >> 32);
}

static uint32_t hash_pair(uint64_t pair) {
    return (uint32_t)((pair * 0x9e3779b97f4a7c15u) >> 32);
}

static uint32_t slots_for(int64_t count) {
    uint32_t slots = 16;
    while (slots < 2 * count) slots *= 2;
    return slots;
}

int32_t rdi_vocab_find(const rd_tokenizer *t, const char *bytes, size_t count) {
    for (uint32_t slot = hash_bytes(bytes, count) & t->text_mask; t->text_slots[slot];
         slot = (slot + 1) & t->text_mask) {
        int32_t id = t->text_slots[slot] - 1;
        if (t->token[id].byte_count == count && !memcmp(t->token[id].bytes, bytes, count)) return id;
    }
    return -1;
}

static void insert_text(rd_tokenizer *t, int32_t id) {
    const rdi_token *token = &t->token[id];
    if (rdi_vocab_find(t, token->bytes, token->byte_count) >= 0) return; // the first wins
    uint32_t slot = hash_bytes(token->bytes, token->byte_count) & t->text_mask;
    while (t->text_slots[slot]) slot = (slot + 1) & t->text_mask;
    t->text_slots[slot] = id + 1;
}

rd_status rdi_vocab_finish(rd_tokenizer *t, int64_t merges) {
    if (merges > MAX_TOKENS)
        return rdi_fail(RD_E_FORMAT, "tokenizer: %lld merges, needs at most %d", (long long)merges,
                        MAX_TOKENS);
    uint32_t text_slots = slots_for(t->vocab), merge_slots = slots_for(merges);
    t->text_slots = rdi_arena_alloc(&t->arena, text_slots * sizeof *t->text_slots);
    t->merge_slots = rdi_arena_alloc(&t->arena, merge_slots * sizeof *t->merge_slots);
    if (!t->text_slots || !t->merge_slots) return RD_E_NOMEM;
    t->text_mask = text_slots - 1;
    t->merge_mask = merge_slots - 1;
    for (int32_t id = 0; id < t->vocab;
         id++) // normal tokens first: merges must not reach a special token of equal text
        if (t->token[id].kind == RDI_TOKEN_NORMAL) insert_text(t, id);
    for (int32_t id = 0; id < t->vocab; id++)
        if (t->token[id].kind > RDI_TOKEN_NORMAL) insert_text(t, id);
    for (int byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        int32_t id = rdi_vocab_find(t, &text, 1);
        t->byte_id[byte] = id >= 0 && t->token[id].kind == RDI_TOKEN_NORMAL ? id : -1;
    }
    return RD_OK;
}

static const rdi_merge *merge_slot(const rd_tokenizer *t, uint64_t pair) {
    uint32_t slot = hash_pair(pair) & t->merge_mask;
    while (t->merge_slots[slot].pair && t->merge_slots[slot].pair != pair) slot = (slot + 1) & t->merge_mask;
    return &t->merge_slots[slot];
}

const rdi_merge *rdi_merge_find(const rd_tokenizer *t, int32_t left, int32_t right) {
    const rdi_merge *merge = merge_slot(t, ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1);
    return merge->pair ? merge : NULL;
}

rd_status rdi_merge_add(rd_tokenizer *t, int64_t rank, const char *left, size_t left_bytes, const char *right,
                        size_t right_bytes) {
    char text[1024];
    uint32_t head = 0, tail = 0;
    bool fits = left_bytes + right_bytes <= sizeof text &&
                alphabet_decode(t->byte_of_code, left, left_bytes, text, &head) &&
                alphabet_decode(t->byte_of_code, right, right_bytes, text + head, &tail);
    int32_t left_id = fits ? rdi_vocab_find(t, text, head) : -1,
            right_id = fits ? rdi_vocab_find(t, text + head, tail) : -1;
    int32_t merged = fits ? rdi_vocab_find(t, text, head + tail) : -1;
    if (left_id < 0 || right_id < 0 || merged < 0)
        return rdi_fail(
            RD_E_FORMAT,
            "tokenizer: merge %lld (\"%.*s %.*s\"), needs both parts and their join in the vocabulary",
            (long long)rank, (int)rdi_min((int64_t)left_bytes, 64), left,
            (int)rdi_min((int64_t)right_bytes, 64), right);
    uint64_t pair = ((uint64_t)(uint32_t)left_id << 32 | (uint32_t)right_id) + 1;
    rdi_merge *slot = t->merge_slots + (merge_slot(t, pair) - t->merge_slots);
    if (!slot->pair) *slot = (rdi_merge){pair, (int32_t)rank, merged};
    return RD_OK;
}

// ---- added tokens -----------------------------------------------------------------------------------------------------
static rd_status trie_node(rd_tokenizer *t, int32_t *capacity, uint8_t byte, int32_t *out) {
    if (t->trie_count == *capacity) {
        int32_t grown = *capacity ? 2 * *capacity : 256;
        rdi_trie_node *nodes = rdi_arena_alloc(&t->arena, (size_t)grown * sizeof *nodes);
        if (!nodes) return RD_E_NOMEM;
        if (t->trie_count) memcpy(nodes, t->trie, (size_t)t->trie_count * sizeof *nodes);
        t->trie = nodes;
        *capacity = grown;
    }
    t->trie[t->trie_count] = (rdi_trie_node){-1, -1, -1, byte};
    *out = t->trie_count++;
    return RD_OK;
}

static int32_t trie_child(const rd_tokenizer *t, int32_t node, uint8_t byte) {
    int32_t child = t->trie[node].child;
    while (child >= 0 && t->trie[child].byte != byte) child = t->trie[child].sibling;
    return child;
}

rd_status rdi_trie_build(rd_tokenizer *t) {
    int32_t capacity = 0, root;
    t->trie_count = 0;
    RDI_TRY(trie_node(t, &capacity, 0, &root));
    for (int32_t id = 0; id < t->vocab; id++) {
        const rdi_token *token = &t->token[id];
        if (token->kind < RDI_TOKEN_ADDED || !token->byte_count) continue;
        int32_t node = root;
        for (uint32_t i = 0; i < token->byte_count; i++) {
            int32_t child = trie_child(t, node, (uint8_t)token->bytes[i]);
            if (child < 0) {
                RDI_TRY(trie_node(t, &capacity, (uint8_t)token->bytes[i], &child));
                t->trie[child].sibling = t->trie[node].child;
                t->trie[node].child = child;
            }
            node = child;
        }
        if (t->trie[node].token < 0) t->trie[node].token = id;
    }
    return RD_OK;
}

int32_t rdi_trie_match(const rd_tokenizer *t, const char *text, const char *end, bool specials) {
    int32_t node = 0, best = -1;
    while (text < end && (node = trie_child(t, node, (uint8_t)*text++)) >= 0) {
        int32_t id = t->trie[node].token;
        if (id >= 0 && (specials || t->token[id].kind == RDI_TOKEN_ADDED)) best = id;
    }
    return best;
}

// Texts that published models use to end a turn or a file; a GGUF names only one end token, yet chat models emit others.
void rdi_vocab_mark_ends(rd_tokenizer *t) {
    static const char *const texts[] = {
        "<|endoftext|>", "<|im_end|>",      "<|eot_id|>",    "<|eom_id|>",    "<|end_of_text|>",
        "<|end|>",       "<|end_of_turn|>", "<end_of_turn>", "</s>",          "<|fim_pad|>",
        "<|fim_repo|>",  "<reponame>",      "<|file_sep|>",  "<|repo_name|>", "<|return|>",
    };
    for (size_t i = 0; i < RDI_COUNT(texts); i++) {
        int32_t id = rdi_vocab_find(t, texts[i], strlen(texts[i]));
        if (id >= 0 && t->token[id].kind > RDI_TOKEN_NORMAL) t->token[id].end = true;
    }
}
