// SPDX-License-Identifier: Apache-2.0
// Chat templates over a fixed conversation.
#include "model/jinja.h"
#include "radiance_run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const rd_chat_message messages[] = {
        {"system", "Be brief."}, {"user", " Hi\n"}, {"assistant", "<think>a</think>b"}};
    rdi_jinja_chat chat = {(const char *)data, bytes, "<s>", NULL};
    char text[512];
    size_t needed;
    (void)rdi_jinja_render(&chat, messages, 3, true, text, sizeof text, &needed);
    return 0;
}
