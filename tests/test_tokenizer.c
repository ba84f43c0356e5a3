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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tokenizer_reference_ids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
