// SPDX-License-Identifier: Apache-2.0
// The rest of the public headers under misuse: NULL everywhere, sizes that lie, handles of another engine, handles after
// their end, counts and strings out of range. An error that names what is wrong, never a crash; then the good call works.
#include "support/session_rig.h"
#include "support/files.h"

#define NEED_ERROR(call_, status_, text_) refuse(call_, status_, text_, #call_)
static void refuse(rd_status seen, rd_status wanted, const char *text, const char *call) {
    if (seen != wanted || !strstr(rd_error_text(), text))
        fail_msg("%s: %s, \"%s\"; wanted %s, \"%s\"", call, rd_status_name(seen), rd_error_text(),
                 rd_status_name(wanted), text);
}

// ---- radiance.h ------------------------------------------------------------------------------------------------------
static void test_misuse_tables(void **state) {
    (void)state;
    assert_null(rd_op_at(-1)), assert_null(rd_op_at(INT32_MAX)), assert_null(rd_op_at(INT32_MIN));
    assert_null(rd_op_find(NULL)), assert_null(rd_op_find(""));
    assert_null(rd_kernel_at(-1)), assert_null(rd_kernel_at(INT32_MAX));
    assert_null(rd_kernel_find(NULL)), assert_null(rd_kernel_find(""));
    assert_null(rd_policy_at(-1)), assert_null(rd_policy_at(INT32_MAX));
    assert_null(rd_policy_find(NULL)), assert_null(rd_policy_find(""));
    assert_null(rd_device_fixture_at(-1)), assert_null(rd_device_fixture_at(INT32_MAX));
    rd_env_info env;
    assert_false(rd_env_at(-1, &env) || rd_env_at(INT32_MAX, &env) || rd_env_at(0, NULL));
    assert_int_equal(rd_dtype_bytes((rd_dtype)-1), 0), assert_int_equal(rd_dtype_bytes((rd_dtype)99), 0);
    assert_non_null(rd_dtype_name((rd_dtype)-1)), assert_non_null(rd_dtype_name((rd_dtype)99));
    assert_non_null(rd_status_name((rd_status)-1)), assert_non_null(rd_status_name((rd_status)99));
    const int64_t big = (int64_t)1 << 40;
    rd_tensor t = rd_tensor_4d(NULL, RD_DTYPE_F32, big, big, big, big); // the product overflows
    assert_true(t.stride[3] == 1 && t.stride[2] == big && t.stride[1] == -1 && t.stride[0] == -1);
    t = rd_tensor_4d(NULL, RD_DTYPE_F32, INT64_MAX, INT64_MIN, INT64_MAX, -1);
    assert_int_equal(t.rank, 4);
}

static void test_misuse_devices(void **state) {
    (void)state;
    rd_device *device = (rd_device *)&state;
    NEED_ERROR(rd_device_open("cpu", NULL), RD_E_INVALID, "out=NULL");
    NEED_ERROR(rd_device_open("", &device), RD_E_NO_DEVICE, "needs one of: cpu");
    assert_null(device);
    NEED_ERROR(rd_device_open("cpu:", &device), RD_E_NO_DEVICE, "needs one of: cpu");
    char name[5000];
    memset(name, 'x', sizeof name - 1), name[sizeof name - 1] = 0;
    NEED_ERROR(rd_device_open(name, &device), RD_E_NO_DEVICE, "needs one of: cpu");
    ok(rd_device_open("h200-sm90a", &device));
    rd_device_info info = {.struct_size = sizeof info};
    double gbs;
    NEED_ERROR(rd_device_get_info(NULL, &info), RD_E_INVALID, "device=NULL");
    NEED_ERROR(rd_device_get_info(device, NULL), RD_E_INVALID, "info=NULL");
    info.struct_size = 0;
    NEED_ERROR(rd_device_get_info(device, &info), RD_E_INVALID, "struct_size=0");
    NEED_ERROR(rd_memory_measure(1, NULL, 4096, &gbs), RD_E_INVALID, "data=NULL");
    NEED_ERROR(rd_memory_measure(1, name, 4096, NULL), RD_E_INVALID, "read_gbs=NULL");
    NEED_ERROR(rd_memory_measure(0, name, 4096, &gbs), RD_E_INVALID, "threads=0");
    NEED_ERROR(rd_memory_measure(INT32_MAX, name, INT64_MAX, &gbs), RD_E_INVALID, "threads=2147483647");
    NEED_ERROR(rd_memory_measure(1, name, -1, &gbs), RD_E_INVALID, "bytes=-1");
    ok(rd_memory_measure(2, name, 4096, &gbs));
    assert_true(gbs > 0);
    NEED_ERROR(rd_device_measure(NULL, 1, 1, &gbs), RD_E_INVALID, "device=NULL");
    NEED_ERROR(rd_device_measure(device, 1, 1, NULL), RD_E_INVALID, "read_gbs=NULL");
    NEED_ERROR(rd_device_measure(device, 1, 1, &gbs), RD_E_NO_DEVICE, "fixture");
    rd_device_set_log(NULL, NULL, NULL);
    rd_device_close(device), rd_device_close(NULL);
}

static void test_misuse_contexts(void **state) {
    (void)state;
    rd_ctx *ctx = (rd_ctx *)&state;
    rd_ctx_options o = {.struct_size = sizeof o, .threads = INT32_MAX};
    NEED_ERROR(rd_ctx_create(NULL, NULL), RD_E_INVALID, "out=NULL");
    NEED_ERROR(rd_ctx_create(&o, &ctx), RD_E_INVALID, "threads=2147483647, needs 1 to 4096");
    assert_null(ctx);
    o = (rd_ctx_options){.struct_size = 4};
    NEED_ERROR(rd_ctx_create(&o, &ctx), RD_E_INVALID, "struct_size=4");
    assert_null(rd_ctx_device(NULL)), assert_int_equal(rd_ctx_threads(NULL), 0);
    rd_ctx_free(NULL), rd_plan_free(NULL);
    o = (rd_ctx_options){.struct_size = sizeof o, .threads = 1};
    ok(rd_ctx_create(&o, &ctx));
    const rd_kernel_info *kernel;
    rd_selection selection;
    size_t bytes = 0;
    int32_t count = 1;
    rd_verdict verdict;
    char text[8];
    NEED_ERROR(rd_kernel_select(NULL, "sample", NULL, 0, &kernel), RD_E_INVALID, "ctx=NULL");
    NEED_ERROR(rd_kernel_select(ctx, "sample", NULL, 0, NULL), RD_E_INVALID, "out=NULL");
    NEED_ERROR(rd_kernel_select(ctx, NULL, NULL, 0, &kernel), RD_E_INVALID, "unknown op");
    NEED_ERROR(rd_kernel_select(ctx, "sample", NULL, 1, &kernel), RD_E_INVALID, "params=NULL with count=1");
    NEED_ERROR(rd_kernel_select(ctx, "sample", NULL, -1, &kernel), RD_E_INVALID, "count=-1");
    const rd_param wrong[][1] = {
        {{NULL, RD_PARAM_INT, 1, NULL}},           {{"", RD_PARAM_INT, 1, NULL}},
        {{"vocab", RD_PARAM_WORD, 1, NULL}},       {{"vocab", (rd_param_kind)7, 1, NULL}},
        {{"vocab", RD_PARAM_INT, -1, "x"}},        {{"vocab", RD_PARAM_INT, INT64_MAX, NULL}},
        {{"vocab", RD_PARAM_INT, INT64_MIN, NULL}}};
    for (size_t i = 0; i < RDI_COUNT(wrong); i++) {
        NEED_ERROR(rd_kernel_select(ctx, "sample", wrong[i], 1, &kernel), RD_E_INVALID, "sample: ");
        assert_null(kernel);
        count = 1;
        NEED_ERROR(rd_kernel_explain(rd_ctx_device(ctx), "sample", wrong[i], 1, &verdict, &count),
                   RD_E_INVALID, "sample: ");
    }
    const rd_param word[] = {{"k", RD_PARAM_INT, 4, NULL}, {"y_dtype", RD_PARAM_WORD, 0, NULL}};
    NEED_ERROR(rd_kernel_select(ctx, "embed", word, 2, &kernel), RD_E_INVALID, "y_dtype=");
    NEED_ERROR(rd_kernel_explain(NULL, "sample", NULL, 0, NULL, &count), RD_E_INVALID, "device=NULL");
    NEED_ERROR(rd_kernel_explain(rd_ctx_device(ctx), "sample", NULL, 0, NULL, NULL), RD_E_INVALID,
               "verdict_count=NULL");
    count = 0;
    NEED_ERROR(rd_kernel_explain(rd_ctx_device(ctx), "sample", NULL, 0, &verdict, &count), RD_E_LIMIT,
               "verdict_count=0");
    NEED_ERROR(rd_selection_at(NULL, 0, &selection), RD_E_INVALID, "ctx=NULL");
    NEED_ERROR(rd_selection_at(ctx, 0, NULL), RD_E_INVALID, "out=NULL");
    NEED_ERROR(rd_selection_at(ctx, 0, &selection), RD_E_LIMIT, "selection=0");
    NEED_ERROR(rd_report_text(NULL, NULL, &bytes), RD_E_INVALID, "ctx=NULL");
    NEED_ERROR(rd_report_text(ctx, text, NULL), RD_E_INVALID, "bytes=NULL");
    NEED_ERROR(rd_plan_text(NULL, text, &bytes), RD_E_INVALID, "plan=NULL");
    assert_null(rd_plan_kernel(NULL, 1));
    rd_plan *plan = (rd_plan *)&state;
    const rd_param vocab[] = {RD_INT("vocab", 9)}, k[] = {RD_INT("k", 256)};
    NEED_ERROR(rd_plan_create(NULL, "sample", vocab, 1, 0, 0, &plan), RD_E_INVALID, "ctx=NULL");
    NEED_ERROR(rd_plan_create(ctx, "sample", vocab, 1, 0, 0, NULL), RD_E_INVALID, "out=NULL");
    NEED_ERROR(rd_plan_create(ctx, NULL, vocab, 1, 0, 0, &plan), RD_E_INVALID, "unknown op");
    assert_null(plan);
    NEED_ERROR(rd_plan_create(ctx, "sample", vocab, 1, INT64_MIN, INT64_MAX, &plan), RD_E_INVALID,
               "interval=");
    NEED_ERROR(rd_plan_create(ctx, "act_mul", k, 1, INT64_MIN, INT64_MAX, &plan), RD_E_INVALID,
               "needs 1 <= lo");
    ok(rd_plan_create(ctx, "sample", vocab, 1, 0, 0, &plan));
    NEED_ERROR(rd_plan_text(plan, text, NULL), RD_E_INVALID, "bytes=NULL");
    bytes = sizeof text;
    NEED_ERROR(rd_plan_text(plan, text, &bytes), RD_E_LIMIT, "bytes=8, needs ");
    rd_plan_free(plan);
    rd_tensor w = rd_tensor_2d(text, RD_DTYPE_E4M3, (int64_t)1 << 40, (int64_t)1 << 40), packed = {0};
    NEED_ERROR(rd_weight_pack(ctx, NULL, "panel16", &packed), RD_E_INVALID, "w=NULL");
    NEED_ERROR(rd_weight_pack(ctx, &w, NULL, &packed), RD_E_INVALID, "layout=NULL");
    NEED_ERROR(rd_weight_pack(ctx, &w, "panel16", NULL), RD_E_INVALID, "packed=NULL");
    NEED_ERROR(rd_weight_pack(ctx, &w, "panel16", &packed), RD_E_INVALID, "w: ");
    rd_ctx_free(ctx);
}

static void test_misuse_policy(void **state) {
    (void)state;
    char outputs[16][64], fired[128];
    const rd_policy_info *info;
    NEED_ERROR(rd_policy_eval(NULL, NULL, NULL, 0, outputs, fired), RD_E_INVALID, "unknown rule");
    for (int32_t i = 0; (info = rd_policy_at(i));
         i++) { // no device, no inputs, then every input as the wrong kind
        assert_true(info->output_count <= 16);
        NEED_ERROR(rd_policy_eval(NULL, info->name, NULL, 0, NULL, fired), RD_E_INVALID, "outputs=NULL");
        NEED_ERROR(rd_policy_eval(NULL, info->name, NULL, 0, outputs, NULL), RD_E_INVALID, "rule_fired=NULL");
        NEED_ERROR(rd_policy_eval(NULL, info->name, NULL, 3, outputs, fired), RD_E_INVALID, "params=NULL");
        assert_int_not_equal(rd_policy_eval(NULL, info->name, NULL, 0, outputs, fired), RD_OK);
        const int64_t values[] = {INT64_MIN, -1, 0, INT32_MAX, INT64_MAX};
        for (size_t v = 0; v <= RDI_COUNT(values); v++) {
            rd_param params[32];
            for (int32_t k = 0; k < info->input_count; k++)
                params[k] = v < RDI_COUNT(values) ? (rd_param)RD_INT(info->inputs[k], values[v])
                                                  : (rd_param)RD_WORD(info->inputs[k], NULL);
            (void)rd_policy_eval(NULL, info->name, params, info->input_count, outputs,
                                 fired); // any answer, no crash
        }
    }
}

// ---- radiance_run.h --------------------------------------------------------------------------------------------------
static void test_misuse_models(void **state) {
    (void)state;
    rd_model *model = (rd_model *)&state;
    rd_tokenizer *tokenizer = (rd_tokenizer *)&state;
    rd_model_info info = {.struct_size = sizeof info};
    const char *bytes;
    char text[16];
    size_t count;
    int64_t ids;
    NEED_ERROR(rd_model_open("x", NULL), RD_E_INVALID, "out is NULL");
    NEED_ERROR(rd_model_open(NULL, &model), RD_E_INVALID, "path is empty");
    assert_null(model);
    NEED_ERROR(rd_model_get_info(NULL, &info), RD_E_INVALID, "model or info is NULL");
    assert_null(rd_model_tokenizer(NULL));
    rd_model_close(NULL), rd_tokenizer_close(NULL);
    NEED_ERROR(rd_tokenizer_open("x", NULL), RD_E_INVALID, "NULL");
    NEED_ERROR(rd_tokenizer_open(NULL, &tokenizer), RD_E_INVALID, "path");
    assert_null(tokenizer);
    NEED_ERROR(rd_tokenize(NULL, "x", 1, 0, NULL, &ids), RD_E_INVALID, "NULL");
    NEED_ERROR(rd_token_bytes(NULL, 0, 0, &bytes, &count), RD_E_INVALID, "NULL");
    NEED_ERROR(rd_detokenize(NULL, NULL, 0, 0, text, &count), RD_E_INVALID, "NULL");
    NEED_ERROR(rd_chat_render(NULL, NULL, 0, 0, text, &count), RD_E_INVALID, "NULL");
    assert_int_equal(rd_token_is_end(NULL, 0), 0), assert_int_equal(rd_tokenizer_vocab(NULL), 0);
    rd_convert_options convert = {.struct_size = 0};
    NEED_ERROR(rd_convert(NULL, "y", NULL), RD_E_INVALID, "in or out is empty");
    NEED_ERROR(rd_convert("x", "", NULL), RD_E_INVALID, "in or out is empty");
    NEED_ERROR(rd_convert("x", "y", &convert), RD_E_INVALID, "struct_size=0");
    rd_rope_scaling scaling = {.theta = 10000};
    float frequency[2];
    NEED_ERROR(rd_rope_frequencies(NULL, 4, frequency), RD_E_INVALID, "scaling=NULL");
    NEED_ERROR(rd_rope_frequencies(&scaling, 4, NULL), RD_E_INVALID, "inv_freq=NULL");
    NEED_ERROR(rd_rope_frequencies(&scaling, INT32_MIN, frequency), RD_E_INVALID, "rotary_dim=");
}

static void test_misuse_engines(void **state) {
    (void)state;
    small_rig s;
    small_open(&s, (rig_options){.context = 64});
    rd_engine *engine = (rd_engine *)&state;
    rd_engine_options o = {.struct_size = 0};
    rd_memory_report report = {.struct_size = 0};
    NEED_ERROR(rd_engine_create(NULL, s.r.model, NULL, &engine), RD_E_INVALID, "ctx is NULL");
    assert_null(engine);
    NEED_ERROR(rd_engine_create(s.r.ctx, NULL, NULL, &engine), RD_E_INVALID, "model is NULL");
    NEED_ERROR(rd_engine_create(s.r.ctx, s.r.model, NULL, NULL), RD_E_INVALID, "out is NULL");
    NEED_ERROR(rd_engine_create(s.r.ctx, s.r.model, &o, &engine), RD_E_INVALID, "struct_size=0");
    NEED_ERROR(rd_engine_memory(s.r.ctx, s.r.model, NULL, NULL), RD_E_INVALID, "struct_size=0");
    NEED_ERROR(rd_engine_memory(s.r.ctx, s.r.model, NULL, &report), RD_E_INVALID, "struct_size=0");
    report.struct_size = sizeof report;
    NEED_ERROR(rd_engine_memory(NULL, s.r.model, NULL, &report), RD_E_INVALID, "ctx is NULL");
    rd_engine_free(NULL);
    small_close(&s);
}

static void test_misuse_sessions(void **state) {
    (void)state;
    small_rig s, other;
    small_open(&s, (rig_options){.context = 64, .sessions = 2});
    small_open(&other, (rig_options){.context = 64});
    rd_session *session = s.r.session, *none = (rd_session *)&state, *second, *third;
    NEED_ERROR(rd_session_create(NULL, &none), RD_E_INVALID, "engine is NULL");
    NEED_ERROR(rd_session_create(s.r.engine, NULL), RD_E_INVALID, "out is NULL");
    rd_session_free(NULL);
    assert_int_equal(rd_session_tokens(NULL), 0), assert_int_equal(rd_session_room(NULL), 0);
    assert_null(rd_session_logits(NULL)), assert_null(rd_session_logits(session));
    NEED_ERROR(rd_session_truncate(NULL, 0), RD_E_INVALID, "session is NULL");
    NEED_ERROR(rd_session_truncate(session, 1), RD_E_INVALID, "tokens=1");
    NEED_ERROR(rd_session_truncate(session, INT64_MIN), RD_E_INVALID, "tokens=-");
    NEED_ERROR(rd_session_sync(NULL, s.ids, 4, NULL, NULL), RD_E_INVALID, "session is NULL");
    NEED_ERROR(rd_session_sync(session, NULL, 4, NULL, NULL), RD_E_INVALID, "prompt is empty");
    NEED_ERROR(rd_session_sync(session, s.ids, -4, NULL, NULL), RD_E_INVALID, "prompt is empty");
    NEED_ERROR(rd_session_sync(session, s.ids, INT64_MAX, NULL, NULL), RD_E_LIMIT, "64 fit");
    ok(rd_session_sync(session, s.ids, 4, NULL, NULL));
    const int32_t bad_id = s.m.spec.vocab;
    const struct {
        rd_step_item item;
        const char *text;
    } items[] = {
        {{NULL, s.ids, 1, NULL}, "not an open one"}, {{other.r.session, s.ids, 1, NULL}, "not an open one"},
        {{session, NULL, 1, NULL}, "items[0]"},      {{session, s.ids, 0, NULL}, "count=0"},
        {{session, s.ids, -1, NULL}, "count=-1"},    {{session, s.ids, 18, NULL}, "count=18"},
        {{session, &bad_id, 1, NULL}, "items[0]"}};
    for (size_t i = 0; i < RDI_COUNT(items); i++)
        NEED_ERROR(rd_engine_step(s.r.engine, &items[i].item, 1), RD_E_INVALID, items[i].text);
    const rd_step_item good = {session, s.ids, 1, NULL}, twice[] = {good, good};
    NEED_ERROR(rd_engine_step(NULL, &good, 1), RD_E_INVALID, "needs an engine");
    NEED_ERROR(rd_engine_step(s.r.engine, NULL, 1), RD_E_INVALID, "needs an engine");
    NEED_ERROR(rd_engine_step(s.r.engine, &good, INT32_MIN), RD_E_INVALID, "count=-");
    NEED_ERROR(rd_engine_step(s.r.engine, twice, 2), RD_E_INVALID, "same session");
    NEED_ERROR(rd_engine_step(other.r.engine, &good, 1), RD_E_INVALID, "not an open one");
    rd_generate_options o = {.struct_size = sizeof o, .max_tokens = 2, .sampling = {.temperature = -1}};
    rd_generate_result result = {.struct_size = sizeof result}, small = {.struct_size = 4};
    int32_t ids[2];
    NEED_ERROR(rd_generate(NULL, s.ids, 4, &o, ids, &result), RD_E_INVALID, "session is NULL");
    NEED_ERROR(rd_generate(session, s.ids, 4, NULL, ids, &result), RD_E_INVALID, "options is NULL");
    NEED_ERROR(rd_generate(session, s.ids, 4, &o, ids, NULL), RD_E_INVALID, "result is NULL");
    NEED_ERROR(rd_generate(session, s.ids, 4, &o, ids, &small), RD_E_INVALID, "struct_size=");
    NEED_ERROR(rd_generate(session, s.ids, 4, &o, NULL, &result), RD_E_INVALID, "ids_out is NULL");
    NEED_ERROR(rd_generate(session, NULL, 4, &o, ids, &result), RD_E_INVALID, "prompt is empty");
    NEED_ERROR(rd_generate(session, s.ids, 4, &o, ids, &result), RD_E_INVALID, "temperature=-1");
    o.sampling.temperature = 0;
    ok(rd_generate(session, s.ids, 4, &o, ids, &result)); // all those failures left the session whole
    ok(rd_session_create(s.r.engine, &second));
    NEED_ERROR(rd_session_create(s.r.engine, &third), RD_E_LIMIT, "max_sessions=2");
    assert_null(third);
    rd_session_free(second), rd_session_free(second); // twice: the second time has nothing to do
    const rd_step_item freed = {second, s.ids, 1, NULL};
    NEED_ERROR(rd_engine_step(s.r.engine, &freed, 1), RD_E_INVALID, "not an open one");
    NEED_ERROR(rd_session_sync(second, s.ids, 4, NULL, NULL), RD_E_STATE, "was freed");
    NEED_ERROR(rd_session_truncate(second, 0), RD_E_STATE, "was freed");
    NEED_ERROR(rd_generate(second, s.ids, 4, &o, ids, &result), RD_E_STATE, "was freed");
    assert_int_equal(rd_session_tokens(second), 0), assert_null(rd_session_logits(second));
    small_close(&other);
    small_close(&s);
}

int main(void) {
    seed = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_misuse_tables),   cmocka_unit_test(test_misuse_devices),
        cmocka_unit_test(test_misuse_contexts), cmocka_unit_test(test_misuse_policy),
        cmocka_unit_test(test_misuse_models),   cmocka_unit_test(test_misuse_engines),
        cmocka_unit_test(test_misuse_sessions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
