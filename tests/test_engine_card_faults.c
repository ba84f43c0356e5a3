// SPDX-License-Identifier: Apache-2.0
// An engine on a card that fails (the simulated card, or RADIANCE_TEST_CARD's): lost after so many launches, no room for the n-th
// buffer, its memory really full. The call says so, everything can be freed, nothing stays on the card, and with room the same text
// comes again. And two engines in two threads, each with its own context.
#include "support/card_rig.h"
#include "support/session_rig.h"

#include <pthread.h>

#include "backend/backend.h"
#include "ops/ctx.h"

enum { PROMPT = 23, TOKENS = 6, MIB = 1 << 20 };
static rd_ctx *probe(void) { // NULL: no card or no kernels, and skipped with the reason
    rd_ctx *ctx = card_ctx();
    rd_ctx_free(ctx);
    return ctx;
}

// ---- the card's driver with faults in front -------------------------------------------------------------------------------
static rdi_driver failing;
static const rdi_driver *the_real; // behind it
static int launches_left, allocs_left, held;
static bool lost;
static rd_status lose(rdi_card *card) {
    lost = true;
    return rdi_fail(RD_E_DEVICE, "%s: lost", card->name);
}
static rd_status lost_launch(rdi_card *card, void *kernel, const rdi_launch *launch, void *stream) {
    return lost || launches_left-- <= 0 ? lose(card) : the_real->launch(card, kernel, launch, stream);
}
static rd_status lost_replay(rdi_card *card, void *graph, void *stream) {
    return lost || launches_left-- <= 0 ? lose(card) : the_real->graph_launch(card, graph, stream);
}
static rd_status lost_sync(rdi_card *card, void *stream) {
    return lost ? lose(card) : the_real->stream_sync(card, stream);
}
static rd_status lost_copy(rdi_card *card, void *to, const void *from, size_t bytes, rdi_copy direction,
                           void *stream) {
    return lost ? lose(card) : the_real->copy(card, to, from, bytes, direction, stream);
}
static rd_status full_alloc(rdi_card *card, size_t bytes, void **out) {
    if (allocs_left-- > 0) {
        rd_status status = the_real->alloc(card, bytes, out);
        held += status == RD_OK;
        return status;
    }
    *out = NULL;
    return rdi_fail(RD_E_NOMEM, "%s: out of memory: %zu bytes asked", card->name, bytes);
}
static rd_status counted_free(rdi_card *card, void *pointer) {
    held -= pointer != NULL;
    return the_real->free(card, pointer);
}
// Room enough, whatever is there: what the engine asks beforehand does not save it from the allocation.
static rd_status much_memory(rdi_card *card, size_t *free_bytes, size_t *total_bytes) {
    rd_status status = the_real->memory(card, free_bytes, total_bytes);
    *free_bytes = *total_bytes;
    return status;
}

static void open_failing(rd_ctx **ctx, int launches, int allocs) {
    ok(rd_ctx_create(
        &(rd_ctx_options){.struct_size = sizeof(rd_ctx_options), .device = card_device(), .threads = 1},
        ctx));
    the_real = (*ctx)->device->card->driver;
    failing = *the_real;
    failing.launch = lost_launch, failing.graph_launch = lost_replay, failing.stream_sync = lost_sync;
    failing.copy = lost_copy, failing.alloc = full_alloc, failing.free = counted_free;
    (*ctx)->device->card->driver = &failing;
    launches_left = launches, allocs_left = allocs, held = 0, lost = false;
}

// Load, prompt and steps; everything freed, whatever happened. Returns what it ended with, its text kept.
static rd_status live(rd_ctx *ctx, const tiny_model *m, int sessions, const int32_t *ids, int32_t *next) {
    rd_model *model = NULL;
    rd_engine *engine = NULL;
    rd_session *session = NULL;
    ok(rd_model_open(m->folder, &model));
    const rd_engine_options options = {.struct_size = sizeof options,
                                       .context_tokens = 64,
                                       .max_sessions = sessions,
                                       .activation = RD_ACT_W8A8};
    const rd_generate_options generate = {
        .struct_size = sizeof generate, .max_tokens = TOKENS, .ignore_end = 1};
    rd_generate_result result = {.struct_size = sizeof result};
    rd_status status = rd_engine_create(ctx, model, &options, &engine);
    if (status == RD_OK) status = rd_session_create(engine, &session);
    if (status == RD_OK) status = rd_generate(session, ids, PROMPT, &generate, next, &result);
    char text[512];
    snprintf(text, sizeof text, "%s", rd_error_text());
    rd_session_free(session);
    rd_engine_free(engine);
    rd_model_close(model);
    if (status != RD_OK) rdi_fail(status, "%s", text);
    return status;
}

static rd_status run_failing(tiny_model *m, const int32_t *ids, int launches, int allocs) {
    rd_ctx *ctx = NULL;
    int32_t next[TOKENS];
    char wanted[64];
    open_failing(&ctx, launches, allocs);
    const rd_status status = live(ctx, m, 1, ids, next);
    snprintf(wanted, sizeof wanted, "%s: %s", card_device(), lost ? "lost" : "out of memory");
    if (status != RD_OK && !strstr(rd_error_text(), wanted))
        fail_msg("status %d: %s", status, rd_error_text());
    assert_int_equal(held, 0);
    ctx->device->card->driver = the_real;
    rd_ctx_free(ctx);
    return status;
}

static void test_failing_card_leaves_nothing(void **state) {
    (void)state;
    if (!probe()) skip();
    enum { NEVER = 1 << 30 };
    tiny_model m;
    int32_t ids[PROMPT];
    tiny_make(&m, &tiny_even, ++seed);
    random_ids(&m, ids, PROMPT);
    assert_int_equal(run_failing(&m, ids, NEVER, NEVER), RD_OK);
    const int launches = NEVER - launches_left, allocs = NEVER - allocs_left;
    assert_true(launches > 40 && allocs >= 4);
    // In the prompt, the sampler, the first step, its recording, a replay, the last launch.
    for (int n = 0; n < launches; n += 1 + launches / 9)
        assert_int_equal(run_failing(&m, ids, n, NEVER), RD_E_DEVICE);
    assert_int_equal(run_failing(&m, ids, launches - 1, NEVER), RD_E_DEVICE);
    for (int n = 0; n < allocs; n++) assert_int_equal(run_failing(&m, ids, NEVER, n), RD_E_NOMEM);
    tiny_free(&m);
}

// ---- memory that is full ---------------------------------------------------------------------------------------------------
// All of the card's memory but so much (a driver's free bytes are not always one piece: a little less is tried).
static void *all_but(rd_ctx *ctx, size_t left_bytes) {
    rdi_card *card = ctx->device->card;
    void *hog = NULL;
    size_t room = 0, total = 0;
    must(the_real->memory(card, &room, &total));
    for (int i = 0; i < 64; i++) {
        if (the_real->alloc(card, room - left_bytes - (size_t)i * MIB, &hog) == RD_OK) return hog;
    }
    fail_msg("%s", rd_error_text());
    return NULL;
}

// Another program leaves so much of a real card's memory: nothing at all, room for the weights, for most of the cache, for all but what
// graphs take. Whatever fails says so, nothing is kept, and with the memory back the same tokens come.
static void test_memory_that_others_hold(void **state) {
    (void)state;
    if (card_is_simulated()) skip(); // test_card_faults.c, by the simulator's own limit
    if (!probe()) skip();
    enum { SESSIONS = 1024 };
    static const int room_mib[] = {0, 1, 2, 8, 16, 32, 64, 96, 128, 160, 192, 256, 512};
    tiny_model m;
    rd_ctx *ctx = NULL;
    int32_t ids[PROMPT], before[TOKENS], after[TOKENS];
    int refusals = 0, lives = 0;
    tiny_make(&m, &tiny_even, ++seed);
    random_ids(&m, ids, PROMPT);
    open_failing(&ctx, 1 << 30, 1 << 30);
    ok(live(ctx, &m, SESSIONS, ids, before));
    failing.memory = much_memory;
    for (size_t i = 0; i < RDI_COUNT(room_mib); i++) {
        void *hog = all_but(ctx, (size_t)room_mib[i] * MIB);
        const rd_status status = live(ctx, &m, SESSIONS, ids, after);
        if (status != RD_OK) {
            if (status != RD_E_NOMEM) fail_msg("%d MiB: status %d: %s", room_mib[i], status, rd_error_text());
            print_message("%d MiB left: %s\n", room_mib[i], rd_error_text());
            refusals++;
        } else {
            assert_memory_equal(before, after, sizeof before);
            lives++;
        }
        assert_int_equal(held, 0);
        must(the_real->free(ctx->device->card, hog));
    }
    assert_true(refusals >= 3 && lives >= 1);
    // And with the driver's own word: refused before anything is taken.
    failing.memory = the_real->memory;
    void *hog = all_but(ctx, 4 * MIB);
    refused(live(ctx, &m, SESSIONS, ids, after), RD_E_NOMEM,
            "engine: context_tokens=64, max_sessions=1024: needs ");
    must(the_real->free(ctx->device->card, hog));
    ok(live(ctx, &m, SESSIONS, ids, after));
    assert_memory_equal(before, after, sizeof before);
    ctx->device->card->driver = the_real;
    rd_ctx_free(ctx);
    tiny_free(&m);
}

// ---- two threads -----------------------------------------------------------------------------------------------------------
typedef struct two_job {
    const tiny_model *m;
    int32_t ids[PROMPT], alone[TOKENS], beside[TOKENS];
    int rounds;
    rd_status status;
    char why[256];
} two_job;

static void *generate_in_own_context(void *argument) {
    two_job *job = argument;
    rd_ctx *ctx = NULL;
    const rd_ctx_options options = {.struct_size = sizeof options, .device = card_device(), .threads = 1};
    job->status = rd_ctx_create(&options, &ctx);
    for (int i = 0; i < job->rounds && job->status == RD_OK; i++) {
        job->status = live(ctx, job->m, 1, job->ids, job->beside);
        if (job->status == RD_OK && memcmp(job->alone, job->beside, sizeof job->alone) != 0)
            job->status = rdi_fail(RD_E_INTERNAL, "round %d: other tokens than alone", i);
    }
    if (job->status != RD_OK) snprintf(job->why, sizeof job->why, "%s", rd_error_text());
    rd_ctx_free(ctx);
    return NULL;
}

static void test_two_engines_in_two_threads(void **state) {
    (void)state;
    if (!probe()) skip();
    tiny_model m;
    two_job jobs[2] = {{.rounds = card_is_simulated() ? 1 : 10}, {.rounds = card_is_simulated() ? 1 : 10}};
    pthread_t threads[2];
    tiny_make(&m, &tiny_even, ++seed);
    for (int i = 0; i < 2; i++) {
        rd_ctx *ctx = NULL;
        const rd_ctx_options options = {.struct_size = sizeof options, .device = card_device(), .threads = 1};
        jobs[i].m = &m;
        random_ids(&m, jobs[i].ids, PROMPT);
        ok(rd_ctx_create(&options, &ctx));
        ok(live(ctx, &m, 1, jobs[i].ids, jobs[i].alone));
        rd_ctx_free(ctx);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, generate_in_own_context, &jobs[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        if (jobs[i].status != RD_OK) fail_msg("thread %d: %s", i, jobs[i].why);
    tiny_free(&m);
}

int main(int argc, char **argv) {
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_engines_in_two_threads),
        cmocka_unit_test(test_failing_card_leaves_nothing),
        cmocka_unit_test(test_memory_that_others_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
