// SPDX-License-Identifier: Apache-2.0
// labels: threads
// rd_convert: codes and scales against the format's formulas, and every way to fail leaves no output behind.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/convert.h"
#include "model/convert.h"
#include "model/model.h"
#include "support/demo_model.h"
#include "support/files.h"
#include "support/tiny_model.h"

typedef struct folders {
    scratch s;
    char in[128], out[128];
} folders;

static folders begin(const tiny_model_options *o) {
    folders f = {.s = scratch_make()};
    snprintf(f.in, sizeof f.in, "%.64s/in", f.s.folder);
    snprintf(f.out, sizeof f.out, "%.64s/out", f.s.folder);
    assert_int_equal(tiny_model_write(f.in, o), 0);
    return f;
}

static void expect_nothing_left(const folders *f) {
    assert_int_equal(scratch_entries(f->s.folder), 1);
} // `in` alone

static void test_convert_code_equals_the_slow_one(void **state) {
    (void)state;
    // Every e4m3 value, every tie between neighbours, and the floats next to each; then a sweep of all bit patterns.
    for (int code = 0; code < 0x7e; code++) {
        float low = rdi_f32_from_e4m3((uint8_t)code), high = rdi_f32_from_e4m3((uint8_t)(code + 1)),
              tie = (low + high) / 2;
        const float values[] = {low, tie, nextafterf(tie, 0), nextafterf(tie, 1e9f), nextafterf(low, 1e9f)};
        for (size_t i = 0; i < RDI_COUNT(values); i++) {
            assert_int_equal(rdi_quant_e4m3(values[i]), rdi_e4m3_from_f32(values[i]));
            assert_int_equal(rdi_quant_e4m3(-values[i]), rdi_e4m3_from_f32(-values[i]));
        }
    }
    for (uint64_t bits = 0; bits < 0x7f800000u; bits += 2039)
        assert_int_equal(rdi_quant_e4m3(rdi_f32_from_bits((uint32_t)bits)),
                         rdi_e4m3_from_f32(rdi_f32_from_bits((uint32_t)bits)));
}

// scale = amax / 448 of each 128x128 block, code = the nearest e4m3 of w / scale; both from the weights as written.
static void expect_quantised(const tiny_model_options *o, const rdi_weight *w) {
    float *source = malloc((size_t)(w->rows * w->cols) * sizeof *source);
    tiny_model_fill(o, w->name, w->rows * w->cols, source);
    int64_t block_cols = (w->cols + 127) / 128;
    assert_int_equal(w->type, RDI_W_E4M3);
    assert_int_equal(w->scale_type, RDI_W_F32);
    for (int64_t r = 0; r < w->rows; r += 128)
        for (int64_t k = 0; k < w->cols; k += 128) {
            float amax = 0, scale;
            for (int64_t i = r; i < r + 128 && i < w->rows; i++)
                for (int64_t j = k; j < k + 128 && j < w->cols; j++)
                    amax = fmaxf(amax, fabsf(source[i * w->cols + j]));
            memcpy(&scale, (const char *)w->scale + 4 * (r / 128 * block_cols + k / 128), 4);
            assert_true(scale == amax / 448.0f);
            for (int64_t i = r; i < r + 128 && i < w->rows; i++)
                for (int64_t j = k; j < k + 128 && j < w->cols; j++)
                    assert_int_equal(((const uint8_t *)w->data)[i * w->cols + j],
                                     rdi_e4m3_from_f32(source[i * w->cols + j] / scale));
        }
    free(source);
}

static void check_convert(const tiny_model_options *o, int head_fp8) {
    folders f = begin(o);
    rd_convert_options options = {.struct_size = sizeof options, .head_fp8 = head_fp8};
    if (rd_convert(f.in, f.out, &options)) fail_msg("%s", rd_error_text());
    assert_int_equal(scratch_entries(f.s.folder), 2); // no temporary folder stays
    rd_model *model;
    if (rd_model_open(f.out, &model)) fail_msg("%s", rd_error_text());
    rd_model_info info = {.struct_size = sizeof info};
    assert_int_equal(rd_model_get_info(model, &info), RD_OK);
    assert_string_equal(info.quantization, "fp8_block128");
    assert_int_equal(info.tied_head, !o->untied && !head_fp8);
    static const rdi_layer_slot linears[] = {RDI_ATTN_Q,   RDI_ATTN_K, RDI_ATTN_V,  RDI_ATTN_O,
                                             RDI_MLP_GATE, RDI_MLP_UP, RDI_MLP_DOWN};
    for (int layer = 0; layer < 2; layer++)
        for (size_t i = 0; i < RDI_COUNT(linears); i++)
            expect_quantised(o, rdi_model_layer_weight(model, layer, linears[i]));
    assert_int_equal(rdi_model_layer_weight(model, 0, RDI_ATTN_NORM)->type, RDI_W_BF16);
    assert_int_equal(rdi_model_weight(model, RDI_EMBED)->type, RDI_W_BF16);
    const rdi_weight *head = rdi_model_weight(model, RDI_HEAD);
    assert_int_equal(head->type, head_fp8 ? RDI_W_E4M3 : RDI_W_BF16);
    if (head_fp8 && o->untied) expect_quantised(o, head);
    assert_non_null(rd_model_tokenizer(model));
    rd_model_close(model);
    scratch_remove(&f.s);
}

static void test_convert_layout(void **state) {
    (void)state;
    check_convert(&(tiny_model_options){.seed = 5}, 0);
    check_convert(&(tiny_model_options){.seed = 6, .architecture = "Qwen3ForCausalLM", .shards = 2}, 1);
    check_convert(&(tiny_model_options){.seed = 7, .untied = 1, .f32 = 1}, 1);
    check_convert(
        &(tiny_model_options){.seed = 8, .rope_scaling = "{\"rope_type\":\"linear\",\"factor\":2.5}"}, 0);
}

static void test_convert_keeps_the_configuration(void **state) {
    (void)state;
    folders f = begin(&(tiny_model_options){
        .rope_scaling = "{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
                        "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":128}"});
    rd_model *a, *b;
    assert_int_equal(rd_convert(f.in, f.out, NULL), RD_OK);
    assert_int_equal(rd_model_open(f.in, &a), RD_OK);
    assert_int_equal(rd_model_open(f.out, &b), RD_OK);
    rdi_model_config before = *rdi_model_get_config(a), after = *rdi_model_get_config(b);
    after.fp8_block = false;
    assert_string_equal(before.architecture, after.architecture);
    assert_memory_equal(&before, &after, sizeof before);
    rd_model_close(a);
    rd_model_close(b);
    scratch_remove(&f.s);
}

// FP8 in: codes and scales pass through bit for bit; only what is asked for changes.
static void test_convert_of_fp8_copies(void **state) {
    (void)state;
    const tiny_model_options o = {.seed = 9};
    folders f = begin(&o);
    char again[128];
    snprintf(again, sizeof again, "%.64s/again", f.s.folder);
    rd_convert_options options = {.struct_size = sizeof options, .head_fp8 = 1};
    assert_int_equal(rd_convert(f.in, f.out, NULL), RD_OK);
    assert_int_equal(rd_convert(f.out, again, &options), RD_OK);
    rd_model *model;
    assert_int_equal(rd_model_open(again, &model), RD_OK);
    expect_quantised(&o, rdi_model_layer_weight(model, 1, RDI_MLP_DOWN));
    assert_int_equal(rdi_model_weight(model, RDI_HEAD)->type, RDI_W_E4M3);
    rd_model_close(model);
    scratch_remove(&f.s);
}

// ---- failures -------------------------------------------------------------------------------------------------------
static void test_convert_refuses_nan(void **state) {
    (void)state;
    static const char *const tensors[] = {"model.norm.weight", "model.embed_tokens.weight",
                                          "model.layers.1.mlp.up_proj.weight"};
    for (size_t t = 0; t < RDI_COUNT(tensors); t++) {
        folders f = begin(NULL);
        rd_model *model;
        assert_int_equal(rd_model_open(f.in, &model), RD_OK);
        const rdi_weight *w = t == 0   ? rdi_model_weight(model, RDI_FINAL_NORM)
                              : t == 1 ? rdi_model_weight(model, RDI_EMBED)
                                       : rdi_model_layer_weight(model, 1, RDI_MLP_UP);
        char file[256];
        size_t bytes = 0;
        snprintf(file, sizeof file, "%s/model.safetensors", f.in);
        uint8_t *data = file_read(file, &bytes);
        size_t at = 0; // the tensor's bytes are unique in the file: found by content
        while (memcmp(data + at, w->data, 64)) at++;
        data[at + 2 * 5] = 0xc0;
        data[at + 2 * 5 + 1] = t == 1 ? 0x7f : 0xff; // NaN of either sign
        rd_model_close(model);
        file_write(file, data, bytes);
        free(data);
        assert_int_equal(rd_convert(f.in, f.out, NULL), RD_E_FORMAT);
        assert_non_null(strstr(rd_error_text(), tensors[t]));
        assert_non_null(strstr(rd_error_text(), "[0, 5] is NaN"));
        expect_nothing_left(&f);
        scratch_remove(&f.s);
    }
}

static void test_convert_existing_output(void **state) {
    (void)state;
    folders f = begin(NULL);
    rd_convert_options force = {.struct_size = sizeof force, .overwrite = 1};
    char file[256];
    snprintf(file, sizeof file, "%s/notes.txt", f.out);
    assert_int_equal(mkdir(f.out, 0777), 0);
    assert_int_equal(rd_convert(f.in, f.out, NULL), RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "exists"));
    file_write(file, "mine", 4);
    assert_int_equal(rd_convert(f.in, f.out, &force), RD_E_INVALID); // not a folder of model files: kept
    assert_non_null(strstr(rd_error_text(), "notes.txt"));
    assert_int_equal(scratch_entries(f.out), 1);
    unlink(file);
    assert_int_equal(rd_convert(f.in, f.out, &force), RD_OK);
    assert_int_equal(rd_convert(f.in, f.out, &force), RD_OK);  // over a model folder
    assert_int_equal(rd_convert(f.out, f.out, &force), RD_OK); // over its own input
    assert_int_equal(scratch_entries(f.s.folder), 2);
    rd_model *model;
    assert_int_equal(rd_model_open(f.out, &model), RD_OK);
    rd_model_close(model);
    assert_int_equal(rd_convert(f.in, "/nonexistent/deep/out", NULL), RD_E_IO);
    scratch_remove(&f.s);
}

typedef struct stopper {
    int calls, stop_at;
} stopper;
static int stop(void *state, const char *what, int64_t done, int64_t total) {
    stopper *s = state;
    if (!*what || done < 0 || done > total) s->stop_at = -1000;
    return ++s->calls == s->stop_at;
}

static void test_convert_cancelled_anywhere(void **state) {
    (void)state;
    folders f = begin(&(tiny_model_options){.layers = 1});
    for (int stop_at = 1;; stop_at++) {
        stopper s = {.stop_at = stop_at};
        rd_convert_options options = {.struct_size = sizeof options, .progress = stop, .progress_state = &s};
        rd_status status = rd_convert(f.in, f.out, &options);
        assert_int_equal(s.stop_at, stop_at);
        if (status == RD_OK) {
            assert_int_equal(s.calls, stop_at - 1);
            break;
        }
        assert_int_equal(status, RD_E_CANCELLED);
        expect_nothing_left(&f);
    }
    scratch_remove(&f.s);
}

// A file size limit stands in for a full disk: the write fails part of the way, in the weights or in a later file.
static void test_convert_full_disk(void **state) {
    (void)state;
    folders f = begin(NULL);
    struct rlimit old, small;
    void (*old_handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    static const rlim_t limits[] = {100, 20000, 500000};
    for (size_t i = 0; i < RDI_COUNT(limits); i++) {
        small = old;
        small.rlim_cur = limits[i];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        rd_status status = rd_convert(f.in, f.out, NULL);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, RD_E_IO);
        assert_non_null(strstr(rd_error_text(), "model.safetensors"));
        expect_nothing_left(&f);
    }
    signal(SIGXFSZ, old_handler);
    scratch_remove(&f.s);
}

static void test_convert_every_allocation_fails_once(void **state) {
    (void)state;
    folders f = begin(&(tiny_model_options){.layers = 1});
    for (int64_t n = 1;; n++) {
        rdi_alloc_fail_at(n);
        rd_status status = rd_convert(f.in, f.out, NULL);
        int64_t used = rdi_alloc_count();
        rdi_alloc_fail_at(0);
        if (used < n) { // never asked for (or this build does not count)
            assert_int_equal(status, RD_OK);
            break;
        }
        assert_true(status == RD_OK || status == RD_E_NOMEM);
        assert_int_equal(scratch_entries(f.out), status == RD_OK ? 5 : -1);
        if (status == RD_OK) {
            char command[256];
            snprintf(command, sizeof command, "rm -rf '%s'", f.out);
            assert_int_equal(system(command), 0);
        }
        expect_nothing_left(&f);
    }
    scratch_remove(&f.s);
}

// The command under SIGINT: exit code "cancelled" and nothing left, or it was faster and the output is whole.
static void test_convert_command_interrupted(void **state) {
    (void)state;
    folders f = begin(&(tiny_model_options){.layers = 6, .hidden = 512, .intermediate = 1024});
    for (int delay_us = 0; delay_us < 20000; delay_us += 2500) {
        pid_t child = fork();
        if (child == 0) {
            if (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout)) _exit(99);
            execl(RD_CLI, RD_CLI, "convert", f.in, f.out, "--force", (char *)NULL);
            _exit(99);
        }
        usleep((useconds_t)delay_us);
        kill(child, SIGINT);
        int status;
        waitpid(child, &status, 0);
        if (scratch_entries(f.s.folder) == 2) { // done before the signal: whole
            rd_model *model;
            assert_int_equal(rd_model_open(f.out, &model), RD_OK);
            rd_model_close(model);
        } else {
            expect_nothing_left(&f);
            if (WIFEXITED(status)) assert_int_equal(WEXITSTATUS(status), RD_E_CANCELLED);
        }
    }
    scratch_remove(&f.s);
}

static void count_report(void *state, const rd_convert_tensor_report *tensor) {
    int *count = state;
    ++*count;
    bool norm = strstr(tensor->name, "norm") != NULL, embed = strstr(tensor->name, "embed") != NULL;
    // e4m3 keeps 4 significant bits: no value is off by more than 1/16 of the block's largest, 2.6 % on average.
    if (norm || embed)
        assert_true(tensor->relative_error == 0); // bf16 in, bf16 out
    else
        assert_true(tensor->relative_error > 0.005 && tensor->relative_error < 0.035);
}

static void test_convert_reports_errors(void **state) {
    (void)state;
    folders f = begin(NULL);
    int count = 0;
    rd_convert_options options = {
        .struct_size = sizeof options, .report = count_report, .report_state = &count};
    assert_int_equal(rd_convert(f.in, f.out, &options), RD_OK);
    assert_int_equal(count, 2 + 2 * 9);
    options.struct_size = 4;
    assert_int_equal(rd_convert(f.in, f.out, &options), RD_E_INVALID);
    assert_int_equal(rd_convert(NULL, f.out, NULL), RD_E_INVALID);
    scratch_remove(&f.s);
}

static void test_convert_demo_model(void **state) {
    (void)state;
    NEED_DEMO_MODEL(path);
    scratch s = scratch_make();
    assert_int_equal(rd_convert(path, scratch_path(&s, "out"), NULL), RD_OK);
    rd_tokenizer *a, *b;
    assert_int_equal(rd_tokenizer_open(path, &a), RD_OK);
    assert_int_equal(rd_tokenizer_open(s.path, &b), RD_OK);
    static const char text[] =
        "<|im_start|>user\nHow  many 1234 caf\xc3\xa9s?\n\n\t don't\xe2\x80\xa6<|im_end|>\n \xf0\x9f\x98\x80";
    for (uint32_t flags = 0; flags < 4; flags++) {
        int32_t x[128], y[128];
        int64_t nx = 128, ny = 128;
        assert_int_equal(rd_tokenize(a, text, sizeof text - 1, flags, x, &nx), RD_OK);
        assert_int_equal(rd_tokenize(b, text, sizeof text - 1, flags, y, &ny), RD_OK);
        assert_int_equal(nx, ny);
        assert_memory_equal(x, y, (size_t)nx * sizeof *x);
    }
    for (int32_t id = 0; id < rd_tokenizer_vocab(a); id++)
        assert_int_equal(rd_token_is_end(a, id), rd_token_is_end(b, id));
    const rd_chat_message messages[] = {{"user", "hi"}};
    char one[512], two[512];
    size_t n1 = sizeof one, n2 = sizeof two;
    assert_int_equal(rd_chat_render(a, messages, 1, 1, one, &n1), RD_OK);
    assert_int_equal(rd_chat_render(b, messages, 1, 1, two, &n2), RD_OK);
    assert_string_equal(one, two);
    assert_non_null(strstr(one, "helpful AI assistant named SmolLM")); // the template's default system text
    rd_tokenizer_close(a);
    rd_tokenizer_close(b);
    scratch_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convert_code_equals_the_slow_one),
        cmocka_unit_test(test_convert_layout),
        cmocka_unit_test(test_convert_keeps_the_configuration),
        cmocka_unit_test(test_convert_of_fp8_copies),
        cmocka_unit_test(test_convert_refuses_nan),
        cmocka_unit_test(test_convert_existing_output),
        cmocka_unit_test(test_convert_cancelled_anywhere),
        cmocka_unit_test(test_convert_full_disk),
        cmocka_unit_test(test_convert_every_allocation_fails_once),
        cmocka_unit_test(test_convert_command_interrupted),
        cmocka_unit_test(test_convert_reports_errors),
        cmocka_unit_test(test_convert_demo_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
