// SPDX-License-Identifier: Apache-2.0
// Code objects on a card: loaded once, when a plan first needs a row of theirs, and launched by symbol.
#include "backend/backend.h"

#include <string.h>

static rd_status load(rdi_card *card, const rdi_code_object *object, rdi_loaded **out) {
    rdi_loaded *loaded =
        rdi_calloc(1, sizeof *loaded + (size_t)object->kernel_count * sizeof loaded->kernels[0]);
    if (!loaded) return RD_E_NOMEM;
    loaded->object = object;
    rd_status status = card->driver->module_load(card, object->begin, (size_t)(object->end - object->begin),
                                                 &loaded->module);
    for (int32_t i = 0; i < object->kernel_count && status == RD_OK; i++)
        status =
            card->driver->module_kernel(card, loaded->module, object->kernels[i].symbol, &loaded->kernels[i]);
    if (status != RD_OK) {
        rdi_fail_prefix(status, "code object %s", object->image);
        if (loaded->module) card->driver->module_free(card, loaded->module);
        rdi_free(loaded);
        return status;
    }
    *out = loaded;
    return RD_OK;
}

rd_status rdi_card_load(rdi_card *card, const char *image, const rdi_loaded **out) {
    const rdi_code_object *object = rdi_code_object_find(image);
    if (!object) return rdi_fail(RD_E_UNSUPPORTED, "code object %s is not in this build", image);
    rd_status status = RD_OK;
    pthread_mutex_lock(&card->lock);
    rdi_loaded *at = card->loaded;
    while (at && at->object != object) at = at->next;
    if (!at) {
        status = load(card, object, &at);
        if (status == RD_OK) {
            at->next = card->loaded;
            card->loaded = at;
        }
    }
    pthread_mutex_unlock(&card->lock);
    *out = at;
    return status;
}

void rdi_card_unload_all(rdi_card *card) {
    for (rdi_loaded *at = card->loaded, *next; at; at = next) {
        next = at->next;
        if (!card->stuck) card->driver->module_free(card, at->module);
        rdi_free(at);
    }
    card->loaded = NULL;
}

rd_status rdi_card_launch(rdi_card *card, const rdi_loaded *loaded, const rdi_launch *launch, void *stream) {
    const rdi_code_object *object = loaded->object;
    for (int32_t i = 0; i < object->kernel_count; i++) {
        const rdi_kernel_resources *kernel = &object->kernels[i];
        if (strcmp(kernel->symbol, launch->kernel) != 0) continue;
        // A struct that the host sees otherwise than the kernel would be read past its end, silently.
        if (kernel->args_bytes && kernel->args_bytes != (int32_t)launch->args_bytes)
            return rdi_fail(RD_E_INTERNAL, "%s: %s: args_bytes=%u, the kernel needs %d", card->name,
                            launch->kernel, launch->args_bytes, kernel->args_bytes);
        return card->driver->launch(card, loaded->kernels[i], launch, stream);
    }
    return rdi_fail(RD_E_INTERNAL, "%s: code object %s has no kernel %s", card->name, object->image,
                    launch->kernel);
}
