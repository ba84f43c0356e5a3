// SPDX-License-Identifier: Apache-2.0
// What a GPU backend implements (src/backend/amd over HIP, src/backend/nvidia over the CUDA driver) and what the ops call.
// Nothing else in the library knows a vendor's API.
//
// Device names: "gpu:N" counts the cards of all drivers, "sim:gfx1201" is the AMD driver over our simulator.
//
// Every function may be called from any thread: a driver makes its card current first. A failing one hands back RD_E_DEVICE
// (RD_E_NOMEM for memory) with a text that names the card, the vendor's call and the vendor's reason. A stream of NULL is
// the driver's default stream. Addresses are what kernels see; the host never reads through them.
#ifndef RDI_BACKEND_H
#define RDI_BACKEND_H

#include "backend/code_objects.h"
#include "device/device.h"
#include "registry/registry.h"

#include <pthread.h>

typedef struct rdi_driver rdi_driver;
typedef struct rdi_loaded rdi_loaded;

// An opened card. A driver's own struct begins with this one.
struct rdi_card {
    const rdi_driver *driver;
    char name[24];  // "gpu:0", "sim:gfx1201": what texts call it
    int32_t number; // rd_tensor.device of its memory: 1 + N of "gpu:N" (simulator: 1)
    pthread_mutex_t lock;
    rdi_rates rates;    // filled in by open
    rdi_loaded *loaded; // code objects on this card (loaded.c)
    bool stuck;         // a kernel does not end: nothing that waits for it is called any more
};

typedef enum rdi_copy { RDI_COPY_TO_CARD, RDI_COPY_TO_HOST, RDI_COPY_ON_CARD } rdi_copy;

struct rdi_driver {
    rdi_backend backend;
    // Cards that the vendor's library shows; `why` says in words what is missing when there is none. library: path or name,
    // NULL = the backend's own search (its variable of the environment table first).
    int32_t (*count)(const char *library, char *why, size_t why_bytes);
    // Opens card `index`; fills info (arch, isa text, model, compute units, sizes) and *isa. A card of another architecture
    // is opened with *isa = 0 and its own name in info->arch, so that `devices` can name it. Texts live in the card.
    rd_status (*open)(const char *library, int32_t index, rd_device_info *info, uint32_t *isa,
                      rdi_card **out);
    void (*close)(rdi_card *card);
    // Words for reports: driver and runtime version ("HIP 7.2, driver 6.14"). Lives in the card.
    const char *(*version)(const rdi_card *card);

    rd_status (*alloc)(rdi_card *card, size_t bytes, void **out);      // at least 256-byte aligned
    rd_status (*free)(rdi_card *card, void *pointer);                  // waits until nothing uses it
    rd_status (*host_alloc)(rdi_card *card, size_t bytes, void **out); // page-locked memory of the host
    rd_status (*host_free)(rdi_card *card, void *pointer);
    rd_status (*memory)(rdi_card *card, size_t *free_bytes, size_t *total_bytes);
    // In stream order: host memory must stay as it is until the stream has come past the copy.
    rd_status (*copy)(rdi_card *card, void *to, const void *from, size_t bytes, rdi_copy direction,
                      void *stream);
    rd_status (*copy_peer)(rdi_card *card, void *to, rdi_card *from_card, const void *from, size_t bytes,
                           void *stream);
    rd_status (*set)(rdi_card *card, void *to, uint8_t byte, size_t bytes, void *stream);

    rd_status (*stream_create)(rdi_card *card, void **out);
    rd_status (*stream_free)(rdi_card *card, void *stream);
    rd_status (*stream_sync)(rdi_card *card, void *stream);
    // Has all that was issued ended? Does not wait.
    rd_status (*stream_ready)(rdi_card *card, void *stream, bool *ready);
    rd_status (*event_create)(rdi_card *card, void **out);
    rd_status (*event_free)(rdi_card *card, void *event);
    rd_status (*event_record)(rdi_card *card, void *event, void *stream);
    rd_status (*event_wait)(rdi_card *card, void *event,
                            void *stream);                // stream waits for event; not the host
    rd_status (*event_sync)(rdi_card *card, void *event); // the host waits
    rd_status (*event_elapsed)(rdi_card *card, void *start, void *stop, double *microseconds);

    rd_status (*module_load)(rdi_card *card, const void *image, size_t bytes, void **out);
    rd_status (*module_free)(rdi_card *card, void *module);
    rd_status (*module_kernel)(rdi_card *card, void *module, const char *symbol, void **out);
    // launch->kernel is only for texts here; the maps are encoded into a copy of launch->args.
    rd_status (*launch)(rdi_card *card, void *kernel, const rdi_launch *launch, void *stream);

    // What is issued on `stream` between begin and end is captured, not run. A failing capture ends it.
    rd_status (*graph_begin)(rdi_card *card, void *stream);
    rd_status (*graph_end)(rdi_card *card, void *stream, void **out);
    rd_status (*graph_launch)(rdi_card *card, void *graph, void *stream);
    rd_status (*graph_free)(rdi_card *card, void *graph);
};

extern const rdi_driver rdi_amd_driver;    // amd/driver.c
extern const rdi_driver rdi_nvidia_driver; // nvidia/driver.c

// ---- cards.c ----------------------------------------------------------------------------------------------------------
const rdi_driver *rdi_driver_at(int32_t index); // in the order in which cards are counted; NULL past the end

// ---- loaded.c: code objects on a card ---------------------------------------------------------------------------------
struct rdi_loaded {
    const rdi_code_object *object;
    void *module;
    rdi_loaded *next;
    void *kernels[]; // of object->kernels, in its order
};
// Loads at the first call (thread-safe); the handle lives as long as the card.
rd_status rdi_card_load(rdi_card *card, const char *image, const rdi_loaded **out);
void rdi_card_unload_all(rdi_card *card);
// Checks the launch against the built kernel (symbol, size of the arguments) and starts it.
rd_status rdi_card_launch(rdi_card *card, const rdi_loaded *loaded, const rdi_launch *launch, void *stream);

#endif // RDI_BACKEND_H
