// SPDX-License-Identifier: Apache-2.0
// The JSON reader and config.json: every refusal names field, value and need.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/files.h"

static rd_status read_config(const char *text, rdi_model_config *config) {
    rdi_arena arena = {0};
    const rdi_json *json;
    rd_status status = rdi_json_parse(&arena, "config", text, strlen(text), &json);
    if (!status) status = rdi_config_from_json(json, config);
    rdi_arena_free(&arena);
    return status;
}

// A good config with one member replaced or added ("" removes nothing: JSON's last member of a name counts).
static rd_status read_with(const char *member, rdi_model_config *config) {
    char text[2048];
    snprintf(text, sizeof text,
             "{\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":2,\"hidden_size\":192,"
             "\"intermediate_size\":320,"
             "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"vocab_size\":320,\"max_position_"
             "embeddings\":512,"
             "\"rms_norm_eps\":1e-05,\"rope_theta\":500000.0,\"hidden_act\":\"silu\",\"bos_token_id\":1,"
             "\"eos_token_id\":[2,7]%s%s}",
             *member ? "," : "", member);
    return read_config(text, config);
}

static void test_config_llama(void **state) {
    (void)state;
    rdi_model_config c;
    assert_int_equal(read_with("", &c), RD_OK);
    assert_string_equal(c.architecture, "LlamaForCausalLM");
    assert_int_equal(c.layers, 2);
    assert_int_equal(c.head_dim, 32); // hidden / heads
    assert_int_equal(c.context_tokens, 512);
    assert_true(c.rope_theta == 500000.0f && c.norm_eps == 1e-5f);
    assert_int_equal(c.rope_scaling, RDI_ROPE_NONE);
    assert_false(c.tied_head);
    assert_false(c.qk_norm);
    assert_false(c.fp8_block);
    assert_int_equal(c.bos_id, 1);
    assert_int_equal(c.eos_count, 2);
    assert_int_equal(c.eos_ids[1], 7);
}

static void test_config_variants(void **state) {
    (void)state;
    rdi_model_config c;
    assert_int_equal(read_with("\"architectures\":[\"Qwen3ForCausalLM\"],\"tie_word_embeddings\":true", &c),
                     RD_OK);
    assert_true(c.qk_norm && c.tied_head);
    assert_int_equal(c.head_dim, 128); // Qwen3's default, whatever hidden / heads is
    assert_int_equal(read_with("\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}", &c), RD_OK);
    assert_int_equal(c.rope_scaling, RDI_ROPE_LINEAR);
    assert_true(c.rope_factor == 4);
    assert_int_equal(
        read_with("\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
                  "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}",
                  &c),
        RD_OK);
    assert_int_equal(c.rope_scaling, RDI_ROPE_LLAMA3);
    assert_int_equal(c.rope_original_context, 8192);
    assert_int_equal(
        read_with("\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1000000.0}", &c), RD_OK);
    assert_true(c.rope_theta == 1e6f);
    assert_int_equal(
        read_with("\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128],"
                  "\"activation_scheme\":\"dynamic\",\"fmt\":\"e4m3\"}",
                  &c),
        RD_OK);
    assert_true(c.fp8_block);
    assert_int_equal(read_with("\"architectures\":null,\"model_type\":\"llama\",\"eos_token_id\":null", &c),
                     RD_OK);
    assert_int_equal(c.eos_count, 0);
}

#define GEMMA                                                                                                \
    "\"architectures\":[\"Gemma3ForCausalLM\"],\"num_hidden_layers\":8,\"hidden_activation\":\"gelu_"        \
    "pytorch_tanh\","                                                                                        \
    "\"sliding_window\":512"
static void test_config_gemma(void **state) {
    (void)state;
    rdi_model_config c;
    if (read_with(GEMMA, &c)) fail_msg("%s", rd_error_text());
    assert_true(c.qk_norm && c.post_norms && c.gelu && c.tied_head);
    assert_true(c.norm_offset == 1 && c.embed_scale == sqrtf(192) && c.attn_scale == 0.0625f); // 256^-1/2
    assert_int_equal(c.head_dim, 256);
    assert_int_equal(c.window, 512);
    assert_true(c.rope_theta == 5e5f && c.local_rope_theta == 1e4f);
    for (int32_t layer = 0; layer < 8; layer++) assert_int_equal(rdi_layer_is_local(&c, layer), layer != 5);
    if (read_with(GEMMA
                  ",\"num_hidden_layers\":4,\"sliding_window_pattern\":2,\"query_pre_attn_scalar\":64,"
                  "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"full_"
                  "attention\"],"
                  "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\",\"rope_theta\":1e6},"
                  "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":2e4}},\"attn_logit_"
                  "softcapping\":null",
                  &c))
        fail_msg("%s", rd_error_text());
    assert_true(c.attn_scale == 0.125f && c.rope_theta == 1e6f && c.local_rope_theta == 2e4f);
    assert_true(rdi_layer_is_local(&c, 2) && !rdi_layer_is_local(&c, 3));
    read_with("", &c);
    assert_true(c.embed_scale == 1 && c.attn_scale == 1 / sqrtf(32) && !c.window && !c.norm_offset);
}

static void test_config_refuses_by_name(void **state) {
    (void)state;
    static const struct {
        const char *member, *text;
        rd_status status;
    } rows[] = {
        {"\"architectures\":[\"MixtralForCausalLM\"]", "architectures=MixtralForCausalLM, needs one of",
         RD_E_UNSUPPORTED},
        {GEMMA ",\"sliding_window\":0", "sliding_window=0, needs a whole number from 1", RD_E_FORMAT},
        {GEMMA ",\"hidden_activation\":\"gelu\"", "hidden_activation=gelu, needs gelu_pytorch_tanh",
         RD_E_UNSUPPORTED},
        {GEMMA ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"},\"sliding_attention\":"
               "{\"rope_type\":\"linear\",\"factor\":8}}",
         "sliding_attention: rope_type=linear, needs default", RD_E_UNSUPPORTED},
        {GEMMA ",\"rope_parameters\":{\"sliding_attention\":{\"partial_rotary_factor\":0.5}}",
         "partial_rotary_factor=0.5, needs 1", RD_E_UNSUPPORTED},
        {"\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.25}",
         "partial_rotary_factor=0.25, needs 1", RD_E_UNSUPPORTED},
        {GEMMA ",\"final_logit_softcapping\":30.0", "final_logit_softcapping is a number, needs null",
         RD_E_UNSUPPORTED},
        {GEMMA ",\"use_bidirectional_attention\":true", "use_bidirectional_attention=true", RD_E_UNSUPPORTED},
        {GEMMA ",\"layer_types\":[]", "layer_types, needs a list of num_hidden_layers=8 words", RD_E_FORMAT},
        {GEMMA ",\"num_hidden_layers\":2,\"layer_types\":[\"sliding_attention\",\"full_attention\"]",
         "layer_types: entry 1 is full_attention, needs full_attention at every 6-th layer",
         RD_E_UNSUPPORTED},
        {GEMMA ",\"num_hidden_layers\":1,\"layer_types\":[\"linear_attention\"]",
         "layer_types: entry 0, needs one of full_attention sliding_attention", RD_E_UNSUPPORTED},
        {"\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}",
         "rope_type=yarn, needs one of default linear llama3", RD_E_UNSUPPORTED},
        {"\"rope_scaling\":{\"rope_type\":\"linear\"}", "factor is missing", RD_E_FORMAT},
        {"\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}",
         "original_max_position_embeddings is missing", RD_E_FORMAT},
        {"\"rope_scaling\":3", "rope_scaling is an integer", RD_E_FORMAT},
        {"\"partial_rotary_factor\":0.5", "partial_rotary_factor=0.5, needs 1", RD_E_UNSUPPORTED},
        {"\"hidden_act\":\"gelu\"", "hidden_act=gelu, needs silu", RD_E_UNSUPPORTED},
        {"\"attention_bias\":true", "attention_bias=true", RD_E_UNSUPPORTED},
        {"\"use_sliding_window\":true", "use_sliding_window=true", RD_E_UNSUPPORTED},
        {"\"num_hidden_layers\":0", "num_hidden_layers=0, needs a whole number from 1", RD_E_FORMAT},
        {"\"num_hidden_layers\":1e9", "num_hidden_layers=1e+09", RD_E_FORMAT},
        {"\"num_hidden_layers\":\"2\"", "num_hidden_layers is a string", RD_E_FORMAT},
        {"\"hidden_size\":-64", "hidden_size=-64", RD_E_FORMAT},
        {"\"vocab_size\":99999999999", "vocab_size=99999999999", RD_E_FORMAT},
        {"\"num_key_value_heads\":4", "num_key_value_heads=4, needs a divisor", RD_E_FORMAT},
        {"\"head_dim\":7", "head_dim=7, needs an even number", RD_E_FORMAT},
        {"\"rms_norm_eps\":0", "rms_norm_eps=0", RD_E_FORMAT},
        {"\"rms_norm_eps\":-1e-5", "rms_norm_eps=-1e-05", RD_E_FORMAT},
        {"\"tie_word_embeddings\":1", "tie_word_embeddings is an integer", RD_E_FORMAT},
        {"\"eos_token_id\":[1,\"x\"]", "eos_token_id", RD_E_FORMAT},
        {"\"quantization_config\":{\"quant_method\":\"awq\"}", "quant_method=awq, needs fp8",
         RD_E_UNSUPPORTED},
        {"\"quantization_config\":{\"quant_method\":\"fp8\"}", "weight_block_size, needs [128, 128]",
         RD_E_UNSUPPORTED},
        {"\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[64,128]}",
         "needs [128, 128]", RD_E_UNSUPPORTED},
        {"\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128],\"activation_"
         "scheme\":\"static\"}",
         "activation_scheme, needs dynamic", RD_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < RDI_COUNT(rows); i++) {
        rdi_model_config c;
        rd_status status = read_with(rows[i].member, &c);
        if (status != rows[i].status || !strstr(rd_error_text(), rows[i].text))
            fail_msg("%s: status %d \"%s\", needs %d \"%s\"", rows[i].member, status, rd_error_text(),
                     rows[i].status, rows[i].text);
    }
}

// ---- JSON ---------------------------------------------------------------------------------------------------------------
static void test_json_values(void **state) {
    (void)state;
    static const char text[] = " {\"i\":-9223372036854775808,\"big\":9223372036854775808,\"r\":-1.5e-3,\"s\":"
                               "\"a\\u00e9\\ud83d\\ude00\\n\\u0000b\","
                               "\"l\":[1,[],{}],\"n\":null,\"t\":true,\"i2\":9007199254740993} ";
    rdi_arena arena = {0};
    const rdi_json *json;
    assert_int_equal(rdi_json_parse(&arena, "doc", text, sizeof text - 1, &json), RD_OK);
    assert_true(rdi_json_get(json, "i")->integer == INT64_MIN);
    assert_int_equal(rdi_json_get(json, "big")->kind, RDI_JSON_REAL); // beyond 64 bits
    assert_true(rdi_json_get(json, "r")->real == -1.5e-3);
    assert_true(rdi_json_get(json, "i2")->integer == 9007199254740993); // 2^53 + 1: exact
    const rdi_json *s = rdi_json_get(json, "s");
    assert_int_equal(s->text_bytes, 10);
    assert_memory_equal(s->text, "a\xc3\xa9\xf0\x9f\x98\x80\n\0b", 10);
    const char *copy;
    assert_int_equal(rdi_json_text(&arena, json, "s", NULL, &copy), RD_E_FORMAT); // NUL inside
    assert_int_equal(rdi_json_get(json, "l")->count, 3);
    assert_null(rdi_json_get(json, "absent"));
    rdi_arena_free(&arena);
}

static void test_json_refuses(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "{",
                                      "[1,]",
                                      "{\"a\"}",
                                      "{\"a\":1,}",
                                      "01",
                                      "1.",
                                      "1e",
                                      "-",
                                      "tru",
                                      "\"a",
                                      "\"\\x\"",
                                      "\"\\u12\"",
                                      "\"\\ud800\"",
                                      "\"\\udc00\"",
                                      "\"\\ud800\\u0041\"",
                                      "\"\t\"",
                                      "1 2",
                                      "{1:2}",
                                      "[1 2]",
                                      "nul",
                                      "+1",
                                      ".5",
                                      "\"\xc3\"",
                                      "\"\xed\xa0\x80\"",
                                      "\"\xf4\x90\x80\x80\"",
                                      "\"\xc0\x80\""};
    for (size_t i = 0; i < RDI_COUNT(bad); i++) {
        rdi_arena arena = {0};
        const rdi_json *json;
        if (rdi_json_parse(&arena, "doc", bad[i], strlen(bad[i]), &json) != RD_E_FORMAT)
            fail_msg("%s is accepted", bad[i]);
        rdi_arena_free(&arena);
    }
    char deep[200];
    memset(deep, '[', sizeof deep);
    rdi_arena arena = {0};
    const rdi_json *json;
    assert_int_equal(rdi_json_parse(&arena, "doc", deep, sizeof deep, &json), RD_E_FORMAT);
    assert_non_null(strstr(rd_error_text(), "nesting"));
    rdi_arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_llama), cmocka_unit_test(test_config_variants),
        cmocka_unit_test(test_config_gemma), cmocka_unit_test(test_config_refuses_by_name),
        cmocka_unit_test(test_json_values),  cmocka_unit_test(test_json_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
