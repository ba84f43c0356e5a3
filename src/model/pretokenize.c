// SPDX-License-Identifier: Apache-2.0
// Normalisation and the pre-tokeniser: text to pieces by a chain of regular expressions (PCRE2, UTF and UCP), each piece
// then to ids. Patterns come from model files, so matching runs under limits.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/tokenizer.h"

#include <pcre2.h>
#include <string.h>
#include <utf8proc.h>

// Published patterns of the tokenizers (facts, as their tokenizer.json files state them).
const char rdi_pattern_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char rdi_pattern_digit[] = "\\p{N}";
const char rdi_pattern_digits[] = "\\p{N}+";
const char rdi_pattern_llama3[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
                                  " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char rdi_pattern_qwen2[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
                                 " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

enum { MAX_PATTERN_BYTES = 4096, MATCH_LIMIT = 1000000, HEAP_LIMIT_KIB = 65536, JIT_STACK_BYTES = 1 << 20 };

static void *counted_alloc(PCRE2_SIZE bytes, void *state) {
    (void)state;
    return rdi_alloc(bytes);
}
static void counted_free(void *pointer, void *state) {
    (void)state;
    rdi_free(pointer);
}

// PCRE2's \s holds U+180E, which left White_Space in Unicode 6.3; tokenizers follow the property. So \s and \S are spelt out.
#define SPACES "\\t-\\r \\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
static size_t spell_spaces(const char *pattern, size_t bytes, char *out) {
    bool in_class = false;
    char *to = out;
    for (size_t i = 0; i < bytes; i++) {
        char c = pattern[i], escaped = c == '\\' && i + 1 < bytes ? pattern[i + 1] : 0;
        const char *spelt = NULL;
        if (escaped == 's') spelt = in_class ? SPACES : "[" SPACES "]";
        if (escaped == 'S' && !in_class) spelt = "[^" SPACES "]";
        if (spelt) {
            while (*spelt) *to++ = *spelt++;
            i++;
            continue;
        }
        if (c == '[') in_class = true;
        if (c == ']') in_class = false;
        *to++ = c;
        if (escaped) *to++ = pattern[++i];
    }
    return (size_t)(to - out);
}

static rd_status compile(const char *pattern, size_t bytes, void **out) {
    pcre2_general_context *general = pcre2_general_context_create(counted_alloc, counted_free, NULL);
    char *spelt = general ? rdi_alloc(bytes * (sizeof SPACES + 3) + 1) : NULL;
    pcre2_compile_context *context = spelt ? pcre2_compile_context_create(general) : NULL;
    rd_status status = context ? RD_OK : RD_E_NOMEM;
    if (!status) {
        int error;
        PCRE2_SIZE at;
        size_t length = spell_spaces(pattern, bytes, spelt);
        pcre2_code *code = pcre2_compile(
            (PCRE2_SPTR)spelt, length, PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, context);
        if (code) {
            pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); // a speed-up only: without it the interpreter runs
            *out = code;
        } else if (error == PCRE2_ERROR_HEAP_FAILED) {
            status = rdi_fail(RD_E_NOMEM, "tokenizer: out of memory for a pattern");
        } else {
            PCRE2_UCHAR text[128];
            pcre2_get_error_message(error, text, sizeof text);
            status = rdi_fail(RD_E_FORMAT, "tokenizer: pattern \"%.*s\": %s",
                              (int)rdi_min((int64_t)bytes, 80), pattern, (char *)text);
        }
    }
    pcre2_compile_context_free(context);
    rdi_free(spelt);
    pcre2_general_context_free(general);
    return status;
}

rd_status rdi_split_add(rd_tokenizer *t, const char *pattern, size_t bytes, rdi_split_kind kind,
                        bool prefix_space) {
    if (t->split_count == RDI_MAX_SPLITS)
        return rdi_fail(RD_E_UNSUPPORTED, "tokenizer: over %d pre-tokenizer steps", RDI_MAX_SPLITS);
    if (bytes > MAX_PATTERN_BYTES)
        return rdi_fail(RD_E_FORMAT, "tokenizer: pattern of %zu bytes, needs at most %d", bytes,
                        MAX_PATTERN_BYTES);
    rdi_split *split = &t->split[t->split_count];
    *split = (rdi_split){.kind = kind, .prefix_space = prefix_space};
    if (pattern) RDI_TRY(compile(pattern, bytes, &split->regex));
    t->split_count++;
    return RD_OK;
}

void rdi_split_free(rd_tokenizer *t) {
    for (int32_t i = 0; i < t->split_count; i++) pcre2_code_free(t->split[i].regex);
    t->split_count = 0;
}

// ---- a run: the per-call state, so that a tokenizer can be shared between threads -------------------------------------
struct rdi_pretoken_run {
    const rd_tokenizer *tokenizer;
    rdi_bpe_scratch scratch;
    pcre2_general_context *general;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    pcre2_match_data *match[RDI_MAX_SPLITS];
    rdi_id_sink *sink;
};

void rdi_pretoken_end(rdi_pretoken_run *run) {
    if (!run) return;
    for (int i = 0; i < RDI_MAX_SPLITS; i++) pcre2_match_data_free(run->match[i]);
    pcre2_jit_stack_free(run->stack);
    pcre2_match_context_free(run->context);
    pcre2_general_context_free(run->general);
    rdi_free(run->scratch.memory);
    rdi_free(run);
}

rd_status rdi_pretoken_begin(const rd_tokenizer *t, rdi_pretoken_run **out) {
    rdi_pretoken_run *run = rdi_calloc(1, sizeof *run);
    if (!run) return RD_E_NOMEM;
    run->tokenizer = t;
    run->general = pcre2_general_context_create(counted_alloc, counted_free, NULL);
    run->context = run->general ? pcre2_match_context_create(run->general) : NULL;
    bool complete = run->context != NULL;
    for (int32_t i = 0; complete && i < t->split_count; i++) {
        if (!t->split[i].regex) continue;
        run->match[i] = pcre2_match_data_create(1, run->general);
        complete = run->match[i] != NULL;
    }
    if (!complete) {
        rdi_pretoken_end(run);
        return RD_E_NOMEM;
    }
    pcre2_set_match_limit(run->context, MATCH_LIMIT);
    pcre2_set_heap_limit(run->context, HEAP_LIMIT_KIB);
    run->stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_BYTES, run->general);
    if (run->stack) pcre2_jit_stack_assign(run->context, NULL, run->stack); // else the machine stack's 32 KiB
    *out = run;
    return RD_OK;
}

static rd_status split_piece(rdi_pretoken_run *run, int32_t step, const char *text, size_t bytes);

static rd_status match_at(rdi_pretoken_run *run, int32_t step, const char *text, size_t bytes, size_t from,
                          bool *found) {
    const pcre2_code *code = run->tokenizer->split[step].regex;
    int rc =
        pcre2_match(code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK, run->match[step], run->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         run->match[step], run->context);
    *found = rc >= 0;
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) return RD_OK;
    PCRE2_UCHAR message[128];
    pcre2_get_error_message(rc, message, sizeof message);
    return rdi_fail(rc == PCRE2_ERROR_NOMEMORY ? RD_E_NOMEM : RD_E_LIMIT,
                    "tokenizer: pre-tokenizer step %d: %s", step, (char *)message);
}

static rd_status split_with_space(rdi_pretoken_run *run, int32_t step, const char *text, size_t bytes);

static rd_status split_by_regex(rdi_pretoken_run *run, int32_t step, const char *text, size_t bytes) {
    rdi_split_kind kind = run->tokenizer->split[step].kind;
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(run->match[step]);
    size_t from = 0, gap = 0; // gap: start of what has matched nothing yet
    while (from < bytes) {
        bool found;
        RDI_TRY(match_at(run, step, text, bytes, from, &found));
        if (!found) break;
        size_t begin = range[0], end = range[1];
        if (end <= begin) { // empty (or reversed by \K): step over one character
            from = (end > from ? end : from) + 1;
            while (from < bytes && (text[from] & 0xc0) == 0x80) from++;
            continue;
        }
        if (begin < gap) begin = gap;
        if (begin > gap && kind != RDI_SPLIT_KEEP_MATCHES)
            RDI_TRY(split_piece(run, step + 1, text + gap, begin - gap));
        if (kind != RDI_SPLIT_KEEP_GAPS) RDI_TRY(split_piece(run, step + 1, text + begin, end - begin));
        from = gap = end;
    }
    if (gap < bytes && kind != RDI_SPLIT_KEEP_MATCHES)
        RDI_TRY(split_piece(run, step + 1, text + gap, bytes - gap));
    return RD_OK;
}

static rd_status split_piece(rdi_pretoken_run *run, int32_t step, const char *text, size_t bytes) {
    const rd_tokenizer *t = run->tokenizer;
    if (step == t->split_count) return rdi_bpe_encode(t, &run->scratch, text, bytes, run->sink);
    if (t->split[step].prefix_space && text[0] != ' ') return split_with_space(run, step, text, bytes);
    if (!t->split[step].regex) return split_piece(run, step + 1, text, bytes);
    return split_by_regex(run, step, text, bytes);
}

static rd_status split_with_space(rdi_pretoken_run *run, int32_t step, const char *text, size_t bytes) {
    char *copy = rdi_alloc(bytes + 1);
    if (!copy) return RD_E_NOMEM;
    copy[0] = ' ';
    memcpy(copy + 1, text, bytes);
    rd_status status = split_piece(run, step, copy, bytes + 1);
    rdi_free(copy);
    return status;
}

static bool is_ascii(const char *text, size_t bytes) {
    unsigned char seen = 0;
    for (size_t i = 0; i < bytes; i++) seen |= (unsigned char)text[i];
    return seen < 0x80;
}

static rd_status encode_normalised(rdi_pretoken_run *run, const char *text, size_t bytes) {
    static const utf8proc_option_t options[] = {
        [RDI_NORMAL_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [RDI_NORMAL_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [RDI_NORMAL_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [RDI_NORMAL_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    utf8proc_option_t option = options[run->tokenizer->normal_form];
    const utf8proc_uint8_t *from = (const utf8proc_uint8_t *)text;
    utf8proc_ssize_t count = utf8proc_decompose(from, (utf8proc_ssize_t)bytes, NULL, 0, option);
    if (count < 0) return rdi_fail(RD_E_INVALID, "tokenizer: normalisation: %s", utf8proc_errmsg(count));
    utf8proc_int32_t *codes = rdi_alloc(((size_t)count + 1) * sizeof *codes);
    if (!codes) return RD_E_NOMEM;
    rd_status status = RD_OK;
    count = utf8proc_decompose(from, (utf8proc_ssize_t)bytes, codes, count, option);
    if (count >= 0) count = utf8proc_reencode(codes, count, option); // in place, UTF-8
    if (count < 0)
        status = rdi_fail(RD_E_INVALID, "tokenizer: normalisation: %s", utf8proc_errmsg(count));
    else if (count)
        status = split_piece(run, 0, (const char *)codes, (size_t)count);
    rdi_free(codes);
    return status;
}

rd_status rdi_pretoken_encode(rdi_pretoken_run *run, const char *text, size_t bytes, rdi_id_sink *sink) {
    if (!bytes) return RD_OK;
    run->sink = sink;
    if (run->tokenizer->normal_form == RDI_NORMAL_NONE || is_ascii(text, bytes))
        return split_piece(run, 0, text, bytes);
    return encode_normalised(run, text, bytes);
}
