// SPDX-License-Identifier: Apache-2.0
// What goes wrong with cards, and the words for it: no library, no device, an old driver, another architecture, a corrupt
// code object, another card's, a missing kernel, arguments of another size, memory that is full, a card lost in mid-run.
// Nothing hangs, and everything can be freed afterwards.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // setenv
#endif
#include "support/card_rig.h"

#include <stdlib.h>

#include "backend/backend.h"
#include "ops/ctx.h"
#include "run_cli.h"
#include "support/tiny_model.h"

static cli_result result;

// The command with the stand-in runtime of tests/support/fake_hip.c.
static void devices(const char *mode) {
    char environment[1024];
    snprintf(environment, sizeof environment, "FAKE_HIP=%s RADIANCE_HIP_LIBRARY='%s'", mode, RD_FAKE_HIP);
    cli_run(environment, "devices", &result);
}

static void says(const char *text) {
    if (!strstr(result.out, text) && !strstr(result.err, text))
        fail_msg("exit code %d, no \"%s\" in\n%s%s", result.code, text, result.out, result.err);
}

static void test_devices_says_what_is_wrong(void **state) {
    (void)state;
    cli_run("RADIANCE_HIP_LIBRARY=no_such_library.so", "devices", &result);
    assert_int_equal(result.code, 0);
    says("amd: no_such_library.so: cannot open shared object file");
    cli_run("RADIANCE_HIP_LIBRARY=libm.so.6", "devices", &result); // a library, and none of HIP
    assert_int_equal(result.code, 0);
    says("amd: libm.so.6 has no hipInit, needs ROCm 6 or later");
    devices("none");
    assert_int_equal(result.code, 0);
    says("shows no device");
    devices("old_driver");
    says("the kernel's amdgpu driver is older than");
    says("(HIP 7.2) needs");
    devices("broken");
    says("hipErrorUnknown (unknown error)");
    devices("gfx1100");
    assert_int_equal(result.code, 0);
    says("AMD Radeon RX 7900 XT");
    says("gfx1100, 96 units");
    says("no kernels in this build for it");
}

static void test_another_card_is_refused_by_name(void **state) {
    (void)state;
    char environment[1024];
    snprintf(environment, sizeof environment, "FAKE_HIP=gfx1100 RADIANCE_HIP_LIBRARY='%s'", RD_FAKE_HIP);
    cli_run(environment, "explain act_mul m=1 k=512 act=silu x_dtype=bf16 y_dtype=bf16 --device gpu:0",
            &result);
    if (!strstr(result.out, "act_mul_gfx1201")) skip(); // built without the rows
    says("isa=gfx1100, needs gfx1201");
    cli_run(environment, "devices --device gpu:1", &result);
    assert_int_equal(result.code, RD_E_NO_DEVICE);
    says("device=gpu:1, this machine has gpu:0 to gpu:0");
    cli_run(environment, "devices --device gpu:x", &result);
    assert_int_equal(result.code, RD_E_NO_DEVICE);
    says("needs gpu: and the number of a card");
    cli_run("RADIANCE_SIM_LIBRARY=no_such_library.so", "devices --device sim:gfx1201", &result);
    assert_int_equal(result.code, RD_E_NO_DEVICE);
    says("no_such_library.so");
}

// ---- code objects -----------------------------------------------------------------------------------------------------
enum { ELF_FLAGS_AT = 48 }; // e_flags of a 64-bit ELF header
static void test_bad_code_objects(void **state) {
    (void)state;
    rd_ctx *ctx = card_ctx();
    if (!ctx) skip();
    rdi_card *card = ctx->device->card;
    const rdi_code_object *object = rdi_code_object_find("gfx1201_elementwise");
    size_t bytes = (size_t)(object->end - object->begin);
    unsigned char *image = malloc(bytes);
    void *module = NULL, *kernel = NULL;
    assert_non_null(image);
    memcpy(image, object->begin, bytes);
    image[1] = 'X'; // "\x7fXLF"
    refused(card->driver->module_load(card, image, bytes, &module), RD_E_DEVICE,
            "sim:gfx1201: hipModuleLoadData: ");
    memcpy(image, object->begin, bytes);
    image[ELF_FLAGS_AT] = 0x41; // EF_AMDGPU_MACH_AMDGCN_GFX1100 (LLVM's AMDGPU usage page)
    refused(card->driver->module_load(card, image, bytes, &module), RD_E_DEVICE, "hipErrorNoBinaryForGpu");
    must(card->driver->module_load(card, object->begin, bytes, &module));
    refused(card->driver->module_kernel(card, module, "rdk_nonsense", &kernel), RD_E_DEVICE,
            "hipModuleGetFunction");
    must(card->driver->module_free(card, module));
    free(image);
    const rdi_loaded *loaded = NULL;
    refused(rdi_card_load(card, "gfx1201_nonsense", &loaded), RD_E_UNSUPPORTED,
            "gfx1201_nonsense is not in this build");
    must(rdi_card_load(card, "gfx1201_elementwise", &loaded));
    rdi_launch launch = {
        .kernel = "rdk_act_mul_gfx1201", .grid = {1, 1, 1}, .block = {256, 1, 1}, .args_bytes = 8};
    refused(rdi_card_launch(card, loaded, &launch, NULL), RD_E_INTERNAL, "args_bytes=8, the kernel needs 72");
    launch.kernel = "rdk_nonsense";
    refused(rdi_card_launch(card, loaded, &launch, NULL), RD_E_INTERNAL, "has no kernel rdk_nonsense");
    launch = (rdi_launch){
        .kernel = "rdk_act_mul_gfx1201", .grid = {1, 1, 1}, .block = {512, 1, 1}, .args_bytes = 72};
    refused(rdi_card_launch(card, loaded, &launch, NULL), RD_E_DEVICE, "sim:gfx1201: rdk_act_mul_gfx1201: ");
    rd_ctx_free(ctx);
}

static void test_memory_is_full(void **state) {
    (void)state;
    rd_ctx *ctx = card_ctx();
    if (!ctx) skip();
    void *first = NULL, *second = NULL;
    must(rd_memory_alloc(ctx, 40 << 20, &first)); // of the 64 MiB that main sets
    refused(rd_memory_alloc(ctx, 40 << 20, &second), RD_E_NOMEM,
            "sim:gfx1201: out of memory: 41943040 bytes asked, ");
    assert_null(second);
    must(rd_memory_free(ctx, first));
    must(rd_memory_alloc(ctx, 40 << 20, &second));
    must(rd_memory_free(ctx, second));
    rd_ctx_free(ctx);
}

// A kernel that writes outside its operand stops the card; each later call says so and the context can still be freed.
static void test_fault_stops_the_card(void **state) {
    (void)state;
    rd_ctx *ctx = card_ctx();
    if (!ctx) skip();
    const rd_param params[] = {RD_INT("k", 512), RD_WORD("act", "silu"), RD_WORD("x_dtype", "fp32"),
                               RD_WORD("y_dtype", "fp32")};
    float host[512] = {0};
    rd_plan *plan = NULL;
    must(rd_plan_create(ctx, "act_mul", params, 4, 1, 1, &plan));
    rd_tensor x = to_card(ctx, rd_tensor_2d(host, RD_DTYPE_F32, 1, 512));
    rd_act_mul_args args = {sizeof args, x, x, x};
    args.y.data = (char *)x.data + (1 << 30);
    must(rd_act_mul_run(plan, &args, NULL)); // launches are asynchronous
    refused(rd_stream_sync(ctx, NULL), RD_E_DEVICE, "hipErrorIllegalAddress");
    assert_non_null(strstr(rd_error_text(), "kernel rdk_act_mul_gfx1201"));
    args.y = x;
    rd_status status = rd_act_mul_run(plan, &args, NULL);
    if (status == RD_OK) status = rd_stream_sync(ctx, NULL);
    refused(status, RD_E_DEVICE, "hipErrorIllegalAddress");
    rd_plan_free(plan);
    (void)rd_memory_free(ctx, x.data);
    rd_ctx_free(ctx);
}

static void test_lost_in_mid_run(void **state) {
    (void)state;
    cli_run("GFX12SIM_LOSE_AFTER=9", "check --device sim:gfx1201 --op act_mul", &result);
    if (result.code == RD_E_NO_DEVICE && !strstr(result.err, "act_mul_gfx1201")) skip();
    assert_true(result.code == RD_E_DEVICE || result.code == RD_E_NO_DEVICE);
    says("act_mul_gfx1201");
    says("sim:gfx1201: hip");
    // The file to send tells what ran, on what, and what stopped it.
    cli_run("GFX12SIM_LOSE_AFTER=9", "check --device sim:gfx1201 --op act_mul --json", &result);
    assert_true(result.code == RD_E_DEVICE || result.code == RD_E_NO_DEVICE);
    says("\"model\":\t\"AMD Radeon AI PRO R9700 (gfx12sim)\"");
    says("\"driver\":\t\"HIP ");
    says("\"fault\":\t\"act_mul_gfx1201: ");
    says("\"verdict\":\t\"FAILED\"");
}

// The whole runner: weights that do not fit, and a card that is lost in the prompt or in a step. Each ends with the words and
// a code, in no more time than a good run.
static void test_generate_on_a_failing_card(void **state) {
    (void)state;
    static const struct {
        const char *environment;
        rd_status code;
        const char *text;
    } runs[] = {{"GFX12SIM_MEMORY=1M", RD_E_NOMEM, "activations and workspace "},
                {"GFX12SIM_LOSE_AFTER=3", RD_E_DEVICE, "device lost"},
                {"GFX12SIM_LOSE_AFTER=60", RD_E_DEVICE, "device lost"},
                {"GFX12SIM_LOSE_AFTER=150", RD_E_DEVICE, "device lost"}};
    const char *arguments =
        "generate faults_model --device sim:gfx1201 --context 128 --raw --prompt 'hello there' "
        "--max-tokens 8 --ignore-end";
    assert_int_equal(tiny_model_write("faults_model", &(tiny_model_options){.seed = 1}), 0);
    cli_run("", arguments, &result);
    if (result.code == RD_E_NO_DEVICE || result.code == RD_E_UNSUPPORTED)
        skip(); // no simulator or no kernels
    assert_int_equal(result.code, 0);
    for (size_t i = 0; i < RDI_COUNT(runs); i++) {
        cli_run(runs[i].environment, arguments, &result);
        if (result.code != (int)runs[i].code)
            fail_msg("%s: exit code %d\n%s", runs[i].environment, result.code, result.err);
        says(runs[i].text);
    }
}

int main(void) {
    setenv("GFX12SIM_MEMORY", "64M", 1); // read at the simulator's first call
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices_says_what_is_wrong),
        cmocka_unit_test(test_another_card_is_refused_by_name),
        cmocka_unit_test(test_bad_code_objects),
        cmocka_unit_test(test_memory_is_full),
        cmocka_unit_test(test_lost_in_mid_run),
        cmocka_unit_test(test_generate_on_a_failing_card),
        cmocka_unit_test(test_fault_stops_the_card), // last: the card stays stopped
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
