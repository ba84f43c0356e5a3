// SPDX-License-Identifier: Apache-2.0
// A context on a card for tests, the simulated one unless RADIANCE_TEST_CARD names another, or a skip that says what is missing.
#ifndef TEST_CARD_RIG_H
#define TEST_CARD_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "radiance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline const char *card_device(void) {
    const char *named = getenv("RADIANCE_TEST_CARD");
    return named && *named ? named : "sim:gfx1201";
}
static inline bool card_is_simulated(void) {
    return !strncmp(card_device(), "sim:", 4);
}

// NULL when there is no such card or the build has no kernels for it: the caller skips.
static inline rd_ctx *card_ctx(void) {
    rd_ctx *ctx = NULL;
    rd_ctx_options options = {.struct_size = sizeof options, .device = card_device(), .threads = 1};
    bool rows = !card_is_simulated();
    const rd_kernel_info *kernel;
    for (int32_t i = 0; (kernel = rd_kernel_at(i)) != NULL; i++) rows |= !strcmp(kernel->backend, "amd");
    if (!rows) {
        print_message("built without the gfx1201 kernels\n");
        return NULL;
    }
    rd_status status = rd_ctx_create(&options, &ctx);
    if (status == RD_E_NO_DEVICE) {
        print_message("%s\n", rd_error_text());
        return NULL;
    }
    if (status != RD_OK) fail_msg("%s", rd_error_text());
    return ctx;
}

static inline void must(rd_status status) {
    if (status != RD_OK) fail_msg("status %d: %s", status, rd_error_text());
}
static inline void refused(rd_status status, rd_status wanted, const char *text) {
    if (status != wanted || !strstr(rd_error_text(), text))
        fail_msg("status %d: \"%s\", wanted %d: \"%s\"", status, rd_error_text(), wanted, text);
}

// A copy of a host tensor's dense data on the card.
static inline rd_tensor to_card(rd_ctx *ctx, rd_tensor host) {
    size_t elems = 1;
    for (int32_t axis = 0; axis < host.rank; axis++) elems *= (size_t)host.shape[axis];
    rd_tensor there = host;
    must(rd_memory_alloc(ctx, elems * rd_dtype_bytes(host.dtype), &there.data));
    must(rd_memory_copy(ctx, there.data, host.data, elems * rd_dtype_bytes(host.dtype), RD_COPY_TO_DEVICE,
                        NULL));
    must(rd_stream_sync(ctx, NULL));
    there.device = rd_ctx_device_number(ctx);
    return there;
}
static inline void from_card(rd_ctx *ctx, void *host, const void *there, size_t bytes, rd_stream stream) {
    must(rd_memory_copy(ctx, host, there, bytes, RD_COPY_TO_HOST, stream));
    must(rd_stream_sync(ctx, stream));
}

#endif // TEST_CARD_RIG_H
