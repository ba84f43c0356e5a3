// SPDX-License-Identifier: Apache-2.0
// A conversation on the terminal. Each turn hands in the whole conversation; the session runs only what is new.
#ifndef CLI_CHAT_H
#define CLI_CHAT_H

#include "runner.h"

typedef struct cli_chat_options {
    const char *system; // NULL: the template's own
    int32_t max_tokens;
    bool stats;
    rd_sample_row sampling;
} cli_chat_options;
rd_status cli_chat(const cli_runner *runner, const cli_chat_options *options);

#endif // CLI_CHAT_H
