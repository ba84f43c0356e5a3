// SPDX-License-Identifier: Apache-2.0
// The driver's vtable where the public header does not reach: two cards and copies between them, events across streams,
// words for reports.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // setenv
#endif
#include "support/card_rig.h"

#include <stdlib.h>

#include "backend/backend.h"

static rdi_card *open_card(int32_t index) {
    char why[256] = "no simulator in this build";
    rd_device_info info = {.struct_size = sizeof info};
    uint32_t isa = 0;
    rdi_card *card = NULL;
    if (!*RD_SIM_LIBRARY || rdi_amd_driver.count(RD_SIM_LIBRARY, why, sizeof why) < 2) {
        print_message("%s\n", why);
        return NULL;
    }
    must(rdi_amd_driver.open(RD_SIM_LIBRARY, index, &info, &isa, &card));
    assert_string_equal(info.arch, "gfx1201");
    assert_int_equal(isa, RDI_ISA_GFX1201);
    assert_int_equal(info.compute_units, 64); // an R9700: 32 work-group processors of two
    assert_true(info.memory_bytes > 0);
    assert_int_equal(strncmp(rdi_amd_driver.version(card), "HIP ", 4), 0);
    return card;
}

static void test_peer_copies(void **state) {
    (void)state;
    const rdi_driver *driver = &rdi_amd_driver;
    rdi_card *first = open_card(0), *second = first ? open_card(1) : NULL;
    if (!second) skip();
    uint8_t host[512], back[512] = {0};
    void *here, *there, *stream;
    for (int i = 0; i < 512; i++) host[i] = (uint8_t)(i * 7);
    must(driver->alloc(first, sizeof host, &here));
    must(driver->alloc(second, sizeof host, &there));
    must(driver->stream_create(second, &stream));
    must(driver->copy(first, here, host, sizeof host, RDI_COPY_TO_CARD, NULL));
    must(driver->stream_sync(first, NULL));
    must(driver->copy_peer(second, there, first, here, sizeof host, stream));
    must(driver->copy(second, back, there, sizeof back, RDI_COPY_TO_HOST, stream));
    must(driver->stream_sync(second, stream));
    assert_memory_equal(back, host, sizeof host);
    must(driver->copy_peer(second, there, first, here, 0, stream));
    must(driver->stream_free(second, stream));
    must(driver->free(second, there));
    must(driver->free(first, here));
    driver->close(second);
    driver->close(first);
}

// The second stream's copy must see what the first one wrote before the event.
static void test_events_order_streams(void **state) {
    (void)state;
    const rdi_driver *driver = &rdi_amd_driver;
    rdi_card *card = open_card(0);
    if (!card) skip();
    void *stream[2], *start, *stop, *memory, *pinned;
    double microseconds = -1;
    must(driver->stream_create(card, &stream[0]));
    must(driver->stream_create(card, &stream[1]));
    must(driver->event_create(card, &start));
    must(driver->event_create(card, &stop));
    must(driver->alloc(card, 4096, &memory));
    must(driver->host_alloc(card, 4096, &pinned));
    for (int round = 1; round <= 20; round++) {
        must(driver->event_record(card, start, stream[0]));
        must(driver->set(card, memory, (uint8_t)round, 4096, stream[0]));
        must(driver->event_record(card, stop, stream[0]));
        must(driver->event_wait(card, stop, stream[1]));
        must(driver->copy(card, pinned, memory, 4096, RDI_COPY_TO_HOST, stream[1]));
        must(driver->stream_sync(card, stream[1]));
        assert_int_equal(((uint8_t *)pinned)[0], round);
        assert_int_equal(((uint8_t *)pinned)[4095], round);
    }
    must(driver->event_sync(card, stop));
    must(driver->event_elapsed(card, start, stop, &microseconds));
    assert_true(microseconds >= 0);
    must(driver->event_free(card, start));
    must(driver->event_free(card, stop));
    must(driver->host_free(card, pinned));
    must(driver->free(card, memory));
    must(driver->stream_free(card, stream[0]));
    must(driver->stream_free(card, stream[1]));
    driver->close(card);
}

int main(void) {
    setenv("GFX12SIM_DEVICES", "2", 1); // read at the simulator's first call
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peer_copies),
        cmocka_unit_test(test_events_order_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
