// SPDX-License-Identifier: Apache-2.0
// rd_device_open: the CPU and the fixtures from below, "gpu:N" over all drivers, "sim:gfx1201" over our simulator.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // dladdr
#endif
#include "backend/backend.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const rdi_driver *const drivers[] = {&rdi_amd_driver, &rdi_nvidia_driver};

const rdi_driver *rdi_driver_at(int32_t index) {
    return index >= 0 && (size_t)index < RDI_COUNT(drivers) ? drivers[index] : NULL;
}

// Finds the driver of the wanted card of all; its number among the driver's own in *index.
static rd_status find_card(const char *name, long wanted, const rdi_driver **driver, int32_t *index) {
    char whys[512] = "";
    size_t used = 0;
    long seen = 0;
    for (int32_t i = 0; rdi_driver_at(i); i++) {
        char why[256] = "";
        int32_t count = rdi_driver_at(i)->count(NULL, why, sizeof why);
        if (wanted < seen + count) {
            *driver = rdi_driver_at(i);
            *index = (int32_t)(wanted - seen);
            return RD_OK;
        }
        seen += count;
        if (*why && used < sizeof whys)
            used += (size_t)snprintf(whys + used, sizeof whys - used, "%s%s", used ? "; " : "", why);
    }
    if (seen) return rdi_fail(RD_E_NO_DEVICE, "device=%s, this machine has gpu:0 to gpu:%ld", name, seen - 1);
    return rdi_fail(RD_E_NO_DEVICE, "device=%s: no card: %s", name, *whys ? whys : "no driver in this build");
}

static rd_status open_card(const char *name, const rdi_driver *driver, const char *library, int32_t index,
                           int32_t number, rd_device **out) {
    if (!driver) return rdi_fail(RD_E_NO_DEVICE, "device=%s: no driver in this build", name);
    rd_device *device = rdi_calloc(1, sizeof *device);
    if (!device) return RD_E_NOMEM;
    device->backend = driver->backend;
    device->info.struct_size = sizeof device->info;
    rd_status status = driver->open(library, index, &device->info, &device->isa, &device->card);
    if (status == RD_OK && device->info.compute_units < 1) { // geometries share work among them
        status = rdi_fail(RD_E_DEVICE, "device=%s: compute_units=%d, needs at least 1", name,
                          device->info.compute_units);
        driver->close(device->card);
    }
    if (status != RD_OK) {
        rdi_free(device);
        return status;
    }
    snprintf(device->name, sizeof device->name, "%s", name);
    device->info.name = device->name;
    snprintf(device->card->name, sizeof device->card->name, "%s", name);
    device->card->driver = driver;
    device->info.driver = driver->version(device->card);
    device->card->number = number;
    device->rates = device->card->rates;
    pthread_mutex_init(&device->card->lock, NULL);
    *out = device;
    return RD_OK;
}

static rd_status open_gpu(const char *name, rd_device **out) {
    char *end;
    long wanted = strtol(name + strlen("gpu:"), &end, 10);
    if (end == name + strlen("gpu:") || *end || wanted < 0 || wanted > 1023)
        return rdi_fail(RD_E_NO_DEVICE, "device=%.40s, needs gpu: and the number of a card", name);
    const rdi_driver *driver = NULL;
    int32_t index = 0;
    RDI_TRY(find_card(name, wanted, &driver, &index));
    return open_card(name, driver, NULL, index, (int32_t)wanted + 1, out);
}

// The simulator stands beside the file that this code is in: libradiance in a build tree or a prefix, or the command.
static rd_status open_simulator(const char *name, rd_device **out) {
    static const char file[] = "libamdhip64_gfx12sim.so";
    char path[1024];
    const char *named = rdi_env_text("RADIANCE_SIM_LIBRARY");
    Dl_info here;
    void *self = NULL;
    rd_status (*function)(const char *, rd_device **) = rd_device_open;
    memcpy(&self, &function, sizeof self);
    if (named && *named) {
        snprintf(path, sizeof path, "%s", named);
    } else if (dladdr(self, &here) && here.dli_fname && strrchr(here.dli_fname, '/')) {
        int folder = (int)(strrchr(here.dli_fname, '/') - here.dli_fname);
        snprintf(path, sizeof path, "%.*s/%s", folder, here.dli_fname, file);
        if (access(path, R_OK) != 0) snprintf(path, sizeof path, "%s", file);
    } else {
        snprintf(path, sizeof path, "%s", file);
    }
    char why[256] = "";
    if (rdi_amd_driver.count(path, why, sizeof why) < 1)
        return rdi_fail(RD_E_NO_DEVICE, "device=%s: %s (RADIANCE_SIM_LIBRARY names the simulator's library)",
                        name, why);
    return open_card(name, &rdi_amd_driver, path, 0, 1, out);
}

rd_status rd_device_open(const char *name, rd_device **out) {
    if (!out) return rdi_fail(RD_E_INVALID, "rd_device_open: out=NULL, needs a place for the device");
    *out = NULL;
    if (!name) name = "cpu";
    if (!strncmp(name, "gpu:", 4)) return open_gpu(name, out);
    if (!strcmp(name, "sim:gfx1201")) return open_simulator(name, out);
    return rdi_device_open_host(name, out);
}

int32_t rd_device_cards(char *text, size_t *bytes) {
    static const char *const words[] = {[RDI_BACKEND_AMD] = "amd", [RDI_BACKEND_NVIDIA] = "nvidia"};
    size_t capacity = text && bytes ? *bytes : 0, used = 0;
    int32_t cards = 0;
    if (capacity) text[0] = 0;
    for (int32_t i = 0; rdi_driver_at(i); i++) {
        const rdi_driver *driver = rdi_driver_at(i);
        char why[256] = "";
        int32_t count = driver->count(NULL, why, sizeof why);
        const char *absent = rdi_rows_absent(driver->backend);
        cards += count;
        const char *lines[] = {count ? NULL : why, absent};
        for (int line = 0; line < 2; line++) {
            if (!lines[line]) continue;
            size_t room = used < capacity ? capacity - used : 0;
            used += (size_t)snprintf(room ? text + used : NULL, room, "%s: %s\n", words[driver->backend],
                                     lines[line]);
        }
    }
    if (bytes) *bytes = used + 1;
    return cards;
}

void rd_device_close(rd_device *device) {
    if (!device) return;
    rdi_card *card = device->card;
    if (card) {
        rdi_card_unload_all(card);
        pthread_mutex_destroy(&card->lock);
        card->driver->close(card);
    }
    rdi_free(device);
}
