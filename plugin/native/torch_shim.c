// SPDX-License-Identifier: Apache-2.0
// Finds the shim's names in the torch libraries that the process has loaded already; loads nothing itself.
#include "torch_shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

rdt_shim rdt_torch;

// torch is loaded with local scope, so the names are not in the global one: the handle of the loaded file is needed.
static void *loaded(const char *folder, const char *file) {
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/%s", folder, file);
    if (length < 0 || (size_t)length >= sizeof path) return NULL;
    return dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
}

static void resolve(void *library, const char *name, void *slot) {
    void *symbol = library ? dlsym(library, name) : NULL;
    if (!symbol) symbol = dlsym(RTLD_DEFAULT, name);
    memcpy(slot, &symbol, sizeof symbol); // a function pointer through its bytes: ISO C has no cast for it
}

bool rdt_shim_bind(const char *folder, const char **missing) {
    void *cpu = loaded(folder, "libtorch_cpu.so"), *gpu = loaded(folder, "libtorch_cuda.so");
    if (!gpu) gpu = loaded(folder, "libtorch_hip.so");
    *missing = NULL;
#define RDT_SHIM(name_, type_, parameters_)                                                                  \
    resolve(cpu, #name_, &rdt_torch.name_);                                                                  \
    if (!rdt_torch.name_) *missing = #name_;
    RDT_SHIM_LIST
#undef RDT_SHIM
    resolve(gpu, "aoti_torch_get_current_cuda_stream", &rdt_torch.aoti_torch_get_current_cuda_stream);
    resolve(cpu, "aoti_torch_dtype_float8_e8m0fnu", &rdt_torch.aoti_torch_dtype_float8_e8m0fnu);
    return !*missing;
}
