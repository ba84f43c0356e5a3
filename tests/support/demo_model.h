// SPDX-License-Identifier: Apache-2.0
// Where tests find the demo model, if it is there: RADIANCE_TEST_MODEL, else where `make demo` puts it.
#ifndef RD_TEST_DEMO_MODEL_H
#define RD_TEST_DEMO_MODEL_H

#include "base/base.h"

#include <stdio.h>
#include <unistd.h>

#define DEMO_MODEL_FILE RD_TEST_DIR "/../models/SmolLM2-135M-Instruct.Q4_1.gguf"

// NULL when the model is absent; says so, by name, so that a skipped test is seen.
static inline const char *demo_model_path(void) {
    const char *path = rdi_env_text("RADIANCE_TEST_MODEL");
    if (!path || !*path) path = DEMO_MODEL_FILE;
    if (access(path, R_OK) == 0) return path;
    printf("skipped: the demo model is absent (%s); `make demo` gets it, or set RADIANCE_TEST_MODEL\n", path);
    return NULL;
}
#define NEED_DEMO_MODEL(path_)                                                                               \
    const char *path_ = demo_model_path();                                                                   \
    if (!path_) skip()

#endif // RD_TEST_DEMO_MODEL_H
