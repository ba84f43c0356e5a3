// SPDX-License-Identifier: Apache-2.0
// Version and build id. Everyone pins by commit, so a report carries both.
#include "radiance.h"

const char *rd_version(void) {
    return RD_VERSION_STRING;
}
const char *rd_build_id(void) {
    return RADIANCE_BUILD_ID;
}
uint32_t rd_abi_version(void) {
    return RD_ABI_VERSION;
}
