// SPDX-License-Identifier: Apache-2.0
// rd_model_open on folders and GGUF files: weights by slot against the values written, and every disagreement refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/model.h"
#include "support/demo_model.h"
#include "support/files.h"
#include "support/tiny_model.h"

static void expect_weight(const tiny_model_options *o, const rdi_weight *w, const char *name, int64_t rows,
                          int64_t cols) {
    assert_non_null(w);
    assert_string_equal(w->name, name);
    assert_int_equal(w->rows, rows);
    assert_int_equal(w->cols, cols);
    float *want = malloc((size_t)(rows * cols) * sizeof *want),
          *got = malloc((size_t)(rows * cols) * sizeof *got);
    tiny_model_fill(o, name, rows * cols, want);
    rdi_weight_rows_f32(w, 0, rows, got);
    assert_memory_equal(got, want, (size_t)(rows * cols) * sizeof *got);
    free(want);
    free(got);
}

static void check_open(const tiny_model_options *o) {
    scratch s = scratch_make();
    rd_model *model;
    assert_int_equal(tiny_model_write(scratch_path(&s, "m"), o), 0);
    if (rd_model_open(s.path, &model)) fail_msg("%s", rd_error_text());
    expect_weight(o, rdi_model_weight(model, RDI_EMBED), "model.embed_tokens.weight", 320, 192);
    expect_weight(o, rdi_model_layer_weight(model, 1, RDI_ATTN_K), "model.layers.1.self_attn.k_proj.weight",
                  128, 192);
    expect_weight(o, rdi_model_layer_weight(model, 0, RDI_MLP_DOWN), "model.layers.0.mlp.down_proj.weight",
                  192, 320);
    expect_weight(o, rdi_model_layer_weight(model, 1, RDI_MLP_NORM),
                  "model.layers.1.post_attention_layernorm.weight", 1, 192);
    const char *head = o->untied ? "lm_head.weight" : "model.embed_tokens.weight";
    expect_weight(o, rdi_model_weight(model, RDI_HEAD), head, 320, 192);
    bool qwen3 = o->architecture && !strcmp(o->architecture, "Qwen3ForCausalLM");
    if (qwen3)
        expect_weight(o, rdi_model_layer_weight(model, 0, RDI_ATTN_Q_NORM),
                      "model.layers.0.self_attn.q_norm.weight", 1, 64);
    else
        assert_null(rdi_model_layer_weight(model, 0, RDI_ATTN_Q_NORM));
    assert_null(rdi_model_layer_weight(model, 2, RDI_ATTN_Q));
    rd_model_info info = {.struct_size = sizeof info};
    assert_int_equal(rd_model_get_info(model, &info), RD_OK);
    assert_string_equal(info.format, "safetensors");
    assert_string_equal(info.quantization, "none");
    assert_int_equal(info.tied_head, !o->untied);
    int64_t layer = 192 * (384 + 128 + 128) + 384 * 192 + 3 * 192 * 320 + 2 * 192 + (qwen3 ? 128 : 0);
    assert_int_equal(info.parameters, 320 * 192 * (o->untied ? 2 : 1) + 192 + 2 * layer);
    assert_int_equal(info.weight_bytes, info.parameters * (o->f32 ? 4 : 2));
    assert_non_null(rd_model_tokenizer(model));
    assert_ptr_equal(rd_model_tokenizer(model), rd_model_tokenizer(model));
    rd_model_close(model);
    scratch_remove(&s);
}

static void test_model_opens_what_was_written(void **state) {
    (void)state;
    check_open(&(tiny_model_options){.seed = 1});
    check_open(&(tiny_model_options){.seed = 2, .architecture = "Qwen3ForCausalLM", .shards = 3});
    check_open(&(tiny_model_options){.seed = 3, .untied = 1, .f32 = 1, .shards = 2});
}

typedef struct fault {
    const char *file, *from, *to, *text;
} fault;

static void check_fault(const tiny_model_options *o, const fault *f) {
    scratch s = scratch_make();
    rd_model *model = (rd_model *)1;
    char folder[128], file[512];
    snprintf(folder, sizeof folder, "%s", scratch_path(&s, "m"));
    assert_int_equal(tiny_model_write(folder, o), 0);
    snprintf(file, sizeof file, "%s/%s", folder, f->file);
    if (f->from)
        file_edit(file, f->from, f->to);
    else
        assert_int_equal(unlink(file), 0);
    rd_status status = rd_model_open(folder, &model);
    if (status == RD_OK || !strstr(rd_error_text(), f->text))
        fail_msg("\"%s\": %d \"%s\"", f->text, status, status ? rd_error_text() : "");
    assert_null(model);
    scratch_remove(&s);
}

static void test_model_refuses_disagreement(void **state) {
    (void)state;
    static const fault faults[] = {
        {"config.json", NULL, NULL, "config.json: No such file"},
        {"model.safetensors", NULL, NULL, "neither model.safetensors nor"},
        {"config.json", "\"hidden_size\":192", "\"hidden_size\":200",
         "model.embed_tokens.weight: rank=2 shape=[320, 192], needs [320, 200]"},
        {"config.json", "\"intermediate_size\":320", "\"intermediate_size\":321",
         "mlp.gate_proj.weight: rank=2 shape=[320, 192], needs [321, 192]"},
        {"config.json", "\"num_key_value_heads\":2", "\"num_key_value_heads\":3",
         "k_proj.weight: rank=2 shape=[128, 192], needs [192, 192]"},
        {"config.json", "\"num_hidden_layers\":2", "\"num_hidden_layers\":1",
         "model.layers.1."}, // tensors without a place
        {"config.json", "\"num_hidden_layers\":2", "\"num_hidden_layers\":1000",
         "num_hidden_layers=1000, needs at most 2"},
        {"config.json", "\"vocab_size\":320", "\"vocab_size\":319", "needs [319, 192]"},
        {"config.json", "\"tie_word_embeddings\":true", "\"tie_word_embeddings\":false",
         "lm_head.weight is missing"},
        {"config.json", "LlamaForCausalLM", "Qwen3ForCausalLM", "q_norm.weight is missing"},
        {"config.json", "LlamaForCausalLM", "MistralForCausalLM", "architectures=MistralForCausalLM"},
        {"config.json", "{", "[", "JSON"},
        {"model.safetensors", "0.self_attn.q_proj.weight\"", "0.self_attn.q_proj.bias00\"",
         "tensor model.layers.0.self_attn.q_proj.weight is missing"},
        {"model.safetensors", "\"BF16\",\"shape\":[320,192]", "\"F8_E4M3\",\"shape\":[32,1]",
         "shape x dtype"},
        {"model.safetensors", "model.norm.weight\":{\"dtype\":\"BF16\",\"shape\":[192]",
         "model.norm.weight\":{\"dtype\":\"U8\",\"shape\":[384]  ",
         "model.norm.weight: rank=1 shape[0]=384, needs [192]"},
    };
    for (size_t i = 0; i < RDI_COUNT(faults); i++) check_fault(&(tiny_model_options){0}, &faults[i]);
}

static void test_model_refuses_bad_shards(void **state) {
    (void)state;
    static const fault faults[] = {
        {"model-00002-of-00002.safetensors", NULL, NULL, "model-00002-of-00002.safetensors: No such file"},
        {"model.safetensors.index.json", "\"weight_map\"", "\"map\"", "weight_map is missing"},
        {"model.safetensors.index.json", ":\"model-00001-of-00002", ":\"../model-00001-of-00002",
         "no plain file name"},
        {"model.safetensors.index.json", ":\"model-00001-of-00002", ":\"model-00002-of-00002",
         "which lacks it"},
        {"model.safetensors.index.json", ":\"model-00001-of-00002.safetensors\"", ":3", "no plain file name"},
    };
    for (size_t i = 0; i < RDI_COUNT(faults); i++)
        check_fault(&(tiny_model_options){.shards = 2}, &faults[i]);
}

// Checkpoints of other packings name their tensors with a tail: the error says so instead of "missing" alone.
static void test_model_bug_36_names_foreign_packing(void **state) {
    (void)state;
    const fault f = {
        "model.safetensors", "0.self_attn.q_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[384,192]",
        "0.self_attn.q_proj.weight_packed\":{\"dtype\":\"U8\",\"shape\":[384,384]", "the file packs it as"};
    scratch s = scratch_make();
    rd_model *model;
    assert_int_equal(tiny_model_write(scratch_path(&s, "m"), NULL), 0);
    char file[512];
    snprintf(file, sizeof file, "%s/model.safetensors", s.path);
    size_t bytes = 0, grown = strlen(f.to) - strlen(f.from);
    uint8_t *data = file_read(file, &bytes), *edited = malloc(bytes + grown);
    uint64_t length;
    memcpy(&length, data, 8);
    char *hit = NULL;
    for (size_t i = 8; i < 8 + length && !hit; i++)
        if (!memcmp(data + i, f.from, strlen(f.from))) hit = (char *)data + i;
    assert_non_null(hit);
    size_t at = (size_t)((uint8_t *)hit - data);
    memcpy(edited, data, at);
    memcpy(edited + at, f.to, strlen(f.to));
    memcpy(edited + at + strlen(f.to), data + at + strlen(f.from), bytes - at - strlen(f.from));
    length += grown;
    memcpy(edited, &length, 8);
    file_write(file, edited, bytes + grown);
    assert_int_equal(rd_model_open(s.path, &model), RD_E_UNSUPPORTED);
    assert_non_null(strstr(rd_error_text(), f.text));
    free(edited);
    free(data);
    scratch_remove(&s);
}

static void test_model_truncated_anywhere(void **state) {
    (void)state;
    scratch s = scratch_make();
    rd_model *model;
    char folder[128], file[512];
    snprintf(folder, sizeof folder, "%s", scratch_path(&s, "m"));
    assert_int_equal(tiny_model_write(folder, &(tiny_model_options){.layers = 1}), 0);
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    size_t bytes = 0;
    uint8_t *data = file_read(file, &bytes);
    for (int step = 0; step < 60; step++) {
        file_write(file, data, bytes * (size_t)step / 60);
        assert_int_equal(rd_model_open(folder, &model), RD_E_FORMAT);
        assert_null(model);
    }
    free(data);
    scratch_remove(&s);
}

static void test_model_bad_paths(void **state) {
    (void)state;
    rd_model *model = (rd_model *)1;
    assert_int_equal(rd_model_open("/nonexistent/model.gguf", &model), RD_E_IO);
    assert_null(model);
    assert_int_equal(rd_model_open("/dev/null", &model), RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "regular file"));
    assert_int_equal(rd_model_open("", &model), RD_E_INVALID);
    assert_int_equal(rd_model_open(NULL, &model), RD_E_INVALID);
    assert_int_equal(rd_model_open("/tmp", NULL), RD_E_INVALID);
    rd_model_close(NULL);
    assert_null(rd_model_tokenizer(NULL));
}

static void test_model_every_allocation_fails_once(void **state) {
    (void)state;
    scratch s = scratch_make();
    assert_int_equal(tiny_model_write(scratch_path(&s, "m"), &(tiny_model_options){.shards = 2}), 0);
    for (int64_t n = 1;; n++) {
        rd_model *model;
        int64_t count = 0;
        rdi_alloc_fail_at(n);
        rd_status status = rd_model_open(s.path, &model);
        if (!status) {
            const rd_tokenizer *t = rd_model_tokenizer(model);
            status = t ? rd_tokenize(t, "hello e\xcc\x81 <|im_end|>", 21, RD_TOKENIZE_SPECIAL, NULL, &count)
                       : RD_E_NOMEM;
            rd_model_close(model);
        }
        int64_t used = rdi_alloc_count();
        rdi_alloc_fail_at(0);
        assert_true(status == RD_OK || status == RD_E_NOMEM);
        if (used < n) { // that allocation was never asked for (or this build does not count)
            assert_int_equal(status, RD_OK);
            break;
        }
    }
    scratch_remove(&s);
}

static void test_model_demo(void **state) {
    (void)state;
    NEED_DEMO_MODEL(path);
    rd_model *model;
    assert_int_equal(rd_model_open(path, &model), RD_OK);
    rd_model_info info = {.struct_size = sizeof info};
    assert_int_equal(rd_model_get_info(model, &info), RD_OK);
    assert_int_equal(info.layers, 30); // the model card's numbers
    assert_int_equal(info.hidden, 576);
    assert_int_equal(info.intermediate, 1536);
    assert_int_equal(info.q_heads, 9);
    assert_int_equal(info.kv_heads, 3);
    assert_int_equal(info.head_dim, 64);
    assert_int_equal(info.vocab, 49152);
    assert_int_equal(info.context_tokens, 8192);
    assert_int_equal(info.tied_head, 1);
    assert_int_equal(info.parameters, 134515008);
    assert_string_equal(info.quantization, "Q4_1+Q8_0");
    assert_true(rdi_model_get_config(model)->rope_theta == 100000.0f);
    assert_int_equal(rdi_model_layer_weight(model, 0, RDI_ATTN_K)->permuted_head_dim, 64);
    assert_int_equal(rdi_model_layer_weight(model, 0, RDI_ATTN_V)->permuted_head_dim, 0);
    rd_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_opens_what_was_written),
        cmocka_unit_test(test_model_refuses_disagreement),
        cmocka_unit_test(test_model_refuses_bad_shards),
        cmocka_unit_test(test_model_bug_36_names_foreign_packing),
        cmocka_unit_test(test_model_truncated_anywhere),
        cmocka_unit_test(test_model_bad_paths),
        cmocka_unit_test(test_model_every_allocation_fails_once),
        cmocka_unit_test(test_model_demo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
