// SPDX-License-Identifier: Apache-2.0
// Tokenizers: ids of the demo model against reference ids from outside, and small tokenizers with merges made here.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer.h"
#include "support/demo_model.h"
#include "support/tiny_model.h"

static void expect_ids(const rd_tokenizer *t, const char *text, uint32_t flags, const cJSON *want) {
    static int32_t ids[65536];
    int64_t count = 65536;
    assert_int_equal(rd_tokenize(t, text, strlen(text), flags, ids, &count), RD_OK);
    if (count != cJSON_GetArraySize(want))
        fail_msg("%.60s: %lld ids, needs %d", text, (long long)count, cJSON_GetArraySize(want));
    int64_t i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, want) {
        if (ids[i] != item->valueint)
            fail_msg("%.60s: id %lld is %d, needs %d", text, (long long)i, ids[i], item->valueint);
        i++;
    }
}

static void check_reference(const rd_tokenizer *t) {
    FILE *file = fopen(RD_TEST_DIR "/refs/tok_smollm2.jsonl", "r");
    assert_non_null(file);
    char *line = NULL;
    size_t room = 0;
    int lines = 0;
    while (getline(&line, &room, file) > 0) {
        cJSON *json = cJSON_Parse(line);
        assert_non_null(json);
        const char *text = cJSON_GetObjectItem(json, "text")->valuestring;
        expect_ids(t, text, 0, cJSON_GetObjectItem(json, "ids"));
        expect_ids(t, text, RD_TOKENIZE_SPECIAL, cJSON_GetObjectItem(json, "ids_special"));
        expect_ids(t, text, RD_TOKENIZE_ADD_BOS, cJSON_GetObjectItem(json, "ids_add"));
        cJSON_Delete(json);
        lines++;
    }
    free(line);
    fclose(file);
    assert_int_equal(lines, 37);
}

static void test_tokenizer_reference_ids(void **state) {
    (void)state;
    NEED_DEMO_MODEL(path);
    rd_tokenizer *t;
    assert_int_equal(rd_tokenizer_open(path, &t), RD_OK);
    check_reference(t);
    for (int32_t id = 0; id < rd_tokenizer_vocab(t); id++) // reference: end of generation = {0, 2, 4}
        assert_int_equal(rd_token_is_end(t, id), id == 0 || id == 2 || id == 4);
    rd_tokenizer_close(t);
}

// ---- small tokenizers made here --------------------------------------------------------------------------------------
static void make_folder(char folder[64]) {
    strcpy(folder, "/tmp/radiance-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static void remove_folder(const char *folder) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

static rd_tokenizer *open_tiny(void) {
    char folder[64];
    rd_tokenizer *t;
    make_folder(folder);
    assert_int_equal(tiny_model_write(folder, NULL), 0);
    if (rd_tokenizer_open(folder, &t)) fail_msg("%s", rd_error_text());
    remove_folder(folder);
    return t;
}

// A tokenizer from JSON text with the given parts; NULL parts take plain ones. The vocabulary: h e l o Ġ 1 2 he ll hell.
static rd_status open_json(rd_tokenizer *t, const char *normalizer, const char *pre, const char *added,
                           const char *model_tail) {
    char text[4096];
    rdi_arena arena = {0};
    const rdi_json *json;
    snprintf(text, sizeof text,
             "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"added_tokens\":[%s],\"model\":{\"type\":\"BPE\","
             "\"vocab\":{\"h\":0,\"e\":1,\"l\":2,"
             "\"o\":3,\"\xc4\xa0\":4,\"1\":5,\"2\":6,\"he\":7,\"ll\":8,\"hell\":9},\"merges\":[\"h e\",\"l "
             "l\",\"he ll\"]%s}}",
             normalizer ? normalizer : "null",
             pre ? pre : "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}",
             added ? added : "", model_tail ? model_tail : "");
    memset(t, 0, sizeof *t);
    rd_status status = rdi_json_parse(&arena, "tokenizer.json", text, strlen(text), &json);
    if (!status) status = rdi_tokenizer_from_json(t, json);
    rdi_arena_free(&arena);
    return status;
}

static void expect(const rd_tokenizer *t, const char *text, uint32_t flags, int count, const int32_t *want) {
    int32_t ids[64];
    int64_t got = 64;
    if (rd_tokenize(t, text, strlen(text), flags, ids, &got)) fail_msg("%s: %s", text, rd_error_text());
    if (got != count) fail_msg("%s: %lld ids, needs %d", text, (long long)got, count);
    for (int i = 0; i < count; i++)
        if (ids[i] != want[i]) fail_msg("%s: id %d is %d, needs %d", text, i, ids[i], want[i]);
}
#define EXPECT(t_, text_, flags_, ...)                                                                       \
    expect(t_, text_, flags_, (int)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)),                     \
           (const int32_t[]){__VA_ARGS__})

static void test_tokenizer_merges_by_rank(void **state) {
    (void)state;
    rd_tokenizer *t = open_tiny();
    // Ids: byte values, then 256 + rank: th the he ll hell hello " w" or " wor" " worl" " world" " the".
    EXPECT(t, "the", 0, 257);
    EXPECT(t, "hello world", 0, 261, 266);
    EXPECT(t, "hell", 0, 260);
    EXPECT(t, " the", 0, 267);
    EXPECT(t, "thhe", 0, 256, 258);
    EXPECT(t, "\xc3\xa9", 0, 0xc3, 0xa9);
    rd_tokenizer_close(t);
}

static void test_tokenizer_special_tokens(void **state) {
    (void)state;
    rd_tokenizer *t = open_tiny();
    EXPECT(t, "<|im_end|>he", RD_TOKENIZE_SPECIAL, TINY_MODEL_IM_END, 258);
    EXPECT(t, "<|im_en", RD_TOKENIZE_SPECIAL, '<', '|', 'i', 'm', '_', 'e', 'n');
    EXPECT(t, "<|", 0, '<', '|');
    int64_t count = 0;
    assert_int_equal(rd_tokenize(t, "<|im_end|>", 10, 0, NULL, &count), RD_OK);
    assert_int_equal(count, 10); // not asked for: plain text
    assert_int_equal(rd_token_is_end(t, TINY_MODEL_IM_END), 1);
    assert_int_equal(rd_token_is_end(t, TINY_MODEL_IM_START), 0);
    assert_int_equal(rd_token_is_end(t, -1), 0);
    assert_int_equal(rd_token_is_end(t, 1 << 30), 0);
    const char *bytes;
    size_t byte_count;
    assert_int_equal(rd_token_bytes(t, TINY_MODEL_IM_END, 0, &bytes, &byte_count), RD_OK);
    assert_int_equal(byte_count, 0);
    assert_int_equal(rd_token_bytes(t, TINY_MODEL_IM_END, 1, &bytes, &byte_count), RD_OK);
    assert_int_equal(byte_count, 10);
    assert_int_equal(rd_token_bytes(t, TINY_MODEL_TOKENS, 1, &bytes, &byte_count), RD_E_INVALID);
    rd_tokenizer_close(t);
}

static void test_tokenizer_added_tokens(void **state) {
    (void)state;
    rd_tokenizer t;
    assert_int_equal(
        open_json(&t, NULL, NULL,
                  "{\"id\":10,\"content\":\"<t>\",\"special\":false},{\"id\":11,\"content\":\"<t>x\","
                  "\"special\":true},"
                  "{\"id\":12,\"content\":\"<m>\",\"special\":true,\"lstrip\":true,\"rstrip\":true}",
                  NULL),
        RD_OK);
    EXPECT(&t, "he<t>he", 0, 7, 10, 7);                       // not special: always cut out
    EXPECT(&t, "<t>x", RD_TOKENIZE_SPECIAL, 11);              // the longest wins
    EXPECT(&t, "h  <m> \n h", RD_TOKENIZE_SPECIAL, 0, 12, 0); // swallows the white space around it
    rdi_tokenizer_destroy(&t);
}

static void test_tokenizer_splits(void **state) {
    (void)state;
    rd_tokenizer t;
#define SPLIT(regex_, behavior_, invert_)                                                                    \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex_         \
    "\"},\"behavior\":\"" behavior_ "\",\"invert\":" invert_                                                 \
    "},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}"
    assert_int_equal(open_json(&t, NULL, SPLIT("l", "Isolated", "false"), NULL, NULL), RD_OK);
    EXPECT(&t, "hell", 0, 7, 2, 2);
    rdi_tokenizer_destroy(&t);
    assert_int_equal(open_json(&t, NULL, SPLIT("o", "Removed", "false"), NULL, NULL), RD_OK);
    EXPECT(&t, "heollo", 0, 7, 8);
    rdi_tokenizer_destroy(&t);
    assert_int_equal(open_json(&t, NULL, SPLIT("[he]+|l+", "Removed", "true"), NULL, NULL), RD_OK);
    EXPECT(&t, "1heo2ll", 0, 7, 8);
    rdi_tokenizer_destroy(&t);
    assert_int_equal(
        open_json(
            &t, NULL,
            "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true},"
            "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}",
            NULL, NULL),
        RD_OK);
    EXPECT(&t, "he12ll", 0, 7, 5, 6, 8);
    rdi_tokenizer_destroy(&t);
    assert_int_equal(open_json(&t, NULL,
                               "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}", NULL,
                               NULL),
                     RD_OK);
    EXPECT(&t, "he", 0, 4, 7);
    EXPECT(&t, " he", 0, 4, 7);
    rdi_tokenizer_destroy(&t);
    // U+180E is no white space (it was until Unicode 6.3, and PCRE2's \s still says so); U+0085 is.
    assert_int_equal(open_json(&t, NULL, SPLIT("\\\\s", "Removed", "false"), NULL, ",\"unk_token\":\"o\""),
                     RD_OK);
    EXPECT(&t,
           "h\xe1\xa0\x8e"
           "e",
           0, 0, 3, 3, 3, 1);
    EXPECT(&t,
           "h\xc2\x85"
           "e",
           0, 0, 1);
    EXPECT(&t,
           "h\xe3\x80\x80"
           "e",
           0, 0, 1);
    rdi_tokenizer_destroy(&t);
}

static void test_tokenizer_model_options(void **state) {
    (void)state;
    rd_tokenizer t;
    assert_int_equal(open_json(&t, NULL, NULL, NULL, NULL), RD_OK);
    EXPECT(&t, "hxe", 0,
           7); // bytes outside the vocabulary vanish, as in the Hugging Face library, and so h meets e
    rdi_tokenizer_destroy(&t);
    assert_int_equal(open_json(&t, NULL, NULL, NULL, ",\"unk_token\":\"o\""), RD_OK);
    EXPECT(&t, "hxe", 0, 0, 3, 1);
    rdi_tokenizer_destroy(&t);
    assert_int_equal(open_json(&t, "{\"type\":\"NFC\"}", NULL, NULL, ",\"unk_token\":\"o\""), RD_OK);
    EXPECT(&t, "e\xcc\x81", 0, 3, 3); // composes to U+00E9: two unknown bytes, no e
    rdi_tokenizer_destroy(&t);
    assert_int_equal(open_json(&t, NULL, NULL, NULL, ",\"unk_token\":\"o\""), RD_OK);
    EXPECT(&t, "e\xcc\x81", 0, 1, 3, 3);
    rdi_tokenizer_destroy(&t);
}

static void test_tokenizer_refuses_by_name(void **state) {
    (void)state;
    static const struct {
        const char *normalizer, *pre, *added, *tail, *text;
    } rows[] = {
        {"{\"type\":\"Lowercase\"}", NULL, NULL, NULL, "normalizer type=Lowercase"},
        {NULL, "{\"type\":\"Whitespace\"}", NULL, NULL, "pre_tokenizer type=Whitespace"},
        {NULL, "{\"type\":\"Digits\"}", NULL, NULL, "no ByteLevel"},
        {NULL, "null", NULL, NULL, "pre_tokenizer type"},
        {NULL, SPLIT("(", "Isolated", "false"), NULL, NULL, "pattern \"(\""},
        {NULL, SPLIT("\\\\C", "Isolated", "false"), NULL, NULL, "pattern"},
        {NULL, SPLIT("a", "MergedWithNext", "false"), NULL, NULL, "behavior=MergedWithNext"},
        {NULL, NULL, "{\"id\":99999999,\"content\":\"x\"}", NULL, "id=99999999"},
        {NULL, NULL, "{\"id\":900000,\"content\":\"x\"}", NULL, "needs dense ids"},
        {NULL, NULL, "{\"id\":10}", NULL, "content is missing"},
        {NULL, NULL, "{\"id\":10,\"content\":\"x\",\"single_word\":true}", NULL, "single_word=true"},
        {NULL, NULL, NULL, ",\"dropout\":0.1", "dropout"},
        {NULL, NULL, NULL, ",\"byte_fallback\":true", "byte_fallback=true"},
        {NULL, NULL, NULL, ",\"end_of_word_suffix\":\"</w>\"", "end_of_word_suffix=</w>"},
        {NULL, NULL, NULL, ",\"type\":\"Unigram\"", "model type=Unigram"},
        {NULL, NULL, NULL, ",\"merges\":[\"h o\"]", "merge 0 (\"h o\")"},
        {NULL, NULL, NULL, ",\"merges\":[\"ho\"]", "merge 0, needs"},
        {NULL, NULL, NULL, ",\"vocab\":{\"h\":-1}", "no token id"},
    };
    for (size_t i = 0; i < RDI_COUNT(rows); i++) {
        rd_tokenizer t;
        rd_status status = open_json(&t, rows[i].normalizer, rows[i].pre, rows[i].added, rows[i].tail);
        rdi_tokenizer_destroy(&t);
        if (!status || !strstr(rd_error_text(), rows[i].text))
            fail_msg("row %zu: \"%s\", needs \"%s\"", i, rd_error_text(), rows[i].text);
    }
}

static void test_tokenizer_hostile_pattern_ends(void **state) {
    (void)state;
    rd_tokenizer t;
    char text[200];
    int64_t count = 0;
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 'b'; // fails at the end, after every way to cut 199 letters
    assert_int_equal(open_json(&t, NULL, SPLIT("^(a|aa)+$", "Isolated", "false"), NULL, NULL), RD_OK);
    assert_int_equal(rd_tokenize(&t, text, sizeof text, 0, NULL, &count), RD_E_LIMIT);
    rdi_tokenizer_destroy(&t);
}

// Merges of one word by the definition: the lowest rank anywhere, leftmost, over the whole word again and again.
static int naive_merge(const char *word, int bytes, int32_t *ids) {
    static char part[2048][2][16];
    char(*text)[2][16] = part;
    int count = bytes;
    for (int i = 0; i < bytes; i++) {
        ids[i] = (unsigned char)word[i];
        text[i][0][0] = word[i];
        text[i][0][1] = 0;
    }
    for (;;) {
        int best = -1, rank = TINY_MODEL_MERGES;
        for (int i = 0; i + 1 < count; i++)
            for (int m = 0; m < rank; m++)
                if (!strcmp(text[i][0], tiny_model_merges[m][0]) &&
                    !strcmp(text[i + 1][0], tiny_model_merges[m][1])) {
                    rank = m;
                    best = i;
                }
        if (best < 0) return count;
        memcpy(text[best][0] + strlen(text[best][0]), text[best + 1][0], strlen(text[best + 1][0]) + 1);
        ids[best] = 256 + rank;
        for (int i = best + 1; i + 1 < count; i++) {
            strcpy(text[i][0], text[i + 1][0]);
            ids[i] = ids[i + 1];
        }
        count--;
    }
}

static void test_tokenizer_long_words_equal_the_definition(void **state) {
    (void)state;
    rd_tokenizer *t = open_tiny();
    uint32_t seed = 12345;
    print_message("seed %u\n", seed);
    rdi_bpe_scratch scratch = {0};
    for (int round = 0; round < 300; round++) {
        char word[1024];
        int32_t want[1024], got[1024];
        int bytes = 1 + (int)(seed % (round < 200 ? 120 : 1000));
        for (int i = 0; i < bytes; i++) {
            seed = seed * 1664525u + 1013904223u;
            word[i] = "thelo wrd"[seed >> 24 & 7 ? (seed >> 16) % 9 : 0];
        }
        rdi_id_sink sink = {got, 1024, 0};
        assert_int_equal(rdi_bpe_encode(t, &scratch, word, (size_t)bytes, &sink), RD_OK);
        assert_int_equal(sink.count, naive_merge(word, bytes, want));
        assert_memory_equal(got, want, (size_t)sink.count * sizeof *got);
    }
    rdi_free(scratch.memory);
    rd_tokenizer_close(t);
}

static void test_tokenizer_million_characters(void **state) {
    (void)state;
    enum { BYTES = 1000000 };
    rd_tokenizer *t = open_tiny();
    char *text = malloc(BYTES + 1), *back = malloc(BYTES + 1);
    int32_t *ids = malloc(BYTES * sizeof *ids);
    static const char *const units[] = {"a", " ", "hello world the ", "\n", "x1"};
    for (size_t u = 0; u < RDI_COUNT(units); u++) {
        size_t unit = strlen(units[u]), bytes = BYTES + 1;
        int64_t count = BYTES;
        for (size_t i = 0; i < BYTES; i++) text[i] = units[u][i % unit];
        text[BYTES] = 0;
        assert_int_equal(rd_tokenize(t, text, BYTES, 0, ids, &count), RD_OK);
        assert_int_equal(rd_detokenize(t, ids, count, 0, back, &bytes), RD_OK);
        assert_int_equal(bytes, BYTES + 1);
        assert_string_equal(back, text);
    }
    free(ids);
    free(back);
    free(text);
    rd_tokenizer_close(t);
}

static void test_tokenizer_refuses_bad_calls(void **state) {
    (void)state;
    rd_tokenizer *t = open_tiny(), *none = (rd_tokenizer *)1;
    int32_t ids[2] = {-7, -7};
    int64_t count = 2;
    assert_int_equal(rd_tokenize(t, "\xff", 1, 0, ids, &count), RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "UTF-8"));
    assert_int_equal(rd_tokenize(t, "a", 1, 8, ids, &count), RD_E_INVALID);
    assert_int_equal(rd_tokenize(NULL, "a", 1, 0, ids, &count), RD_E_INVALID);
    count = 1;
    assert_int_equal(rd_tokenize(t, "ab", 2, 0, ids, &count), RD_E_LIMIT);
    assert_int_equal(count, 2);
    assert_int_equal(ids[1], -7); // not written past its room
    count = 0;
    assert_int_equal(rd_tokenize(t, "", 0, 0, NULL, &count), RD_OK);
    assert_int_equal(count, 0);
    count = 2;
    assert_int_equal(rd_tokenize(t, "\0a", 2, 0, ids, &count), RD_OK); // NUL is a character like others
    assert_int_equal(ids[0], 0);
    assert_int_equal(rd_tokenizer_open("/nonexistent", &none), RD_E_IO);
    assert_null(none);
    assert_int_equal(rd_tokenizer_open("", &none), RD_E_INVALID);
    char text[4];
    size_t bytes = sizeof text;
    assert_int_equal(rd_detokenize(t, (int32_t[]){261}, 1, 0, text, &bytes), RD_E_LIMIT);
    assert_int_equal(bytes, 6);
    rd_tokenizer_close(t);
}

static void test_tokenizer_chat(void **state) {
    (void)state;
    rd_tokenizer *t = open_tiny();
    const rd_chat_message messages[] = {{"user", "hi"}};
    char text[128];
    size_t bytes = 0;
    assert_int_equal(rd_chat_render(t, messages, 1, 1, NULL, &bytes), RD_OK);
    assert_int_equal(bytes, strlen("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n") + 1);
    bytes = 10;
    assert_int_equal(rd_chat_render(t, messages, 1, 1, text, &bytes), RD_E_LIMIT);
    bytes = sizeof text;
    assert_int_equal(rd_chat_render(t, messages, 1, 1, text, &bytes), RD_OK);
    assert_string_equal(text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    rd_tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizer_reference_ids),
        cmocka_unit_test(test_tokenizer_merges_by_rank),
        cmocka_unit_test(test_tokenizer_special_tokens),
        cmocka_unit_test(test_tokenizer_added_tokens),
        cmocka_unit_test(test_tokenizer_splits),
        cmocka_unit_test(test_tokenizer_model_options),
        cmocka_unit_test(test_tokenizer_refuses_by_name),
        cmocka_unit_test(test_tokenizer_hostile_pattern_ends),
        cmocka_unit_test(test_tokenizer_long_words_equal_the_definition),
        cmocka_unit_test(test_tokenizer_million_characters),
        cmocka_unit_test(test_tokenizer_refuses_bad_calls),
        cmocka_unit_test(test_tokenizer_chat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
