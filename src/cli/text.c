// SPDX-License-Identifier: Apache-2.0
// Text in and out of a model: UTF-8 as it comes, files, chat templates, token ids.
#include "runner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ---- UTF-8 -------------------------------------------------------------------------------------------------------------
static int sequence_bytes(unsigned char lead) { // 0: cannot start a sequence
    if (lead < 0x80) return 1;
    if (lead < 0xc2 || lead > 0xf4) return 0;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

static bool may_follow(const cli_utf8 *utf8, unsigned char byte) {
    if ((byte & 0xc0) != 0x80) return false;
    if (utf8->pending_bytes > 1) return true;
    switch (
        utf8->pending[0]) { // no overlong forms, no surrogates, nothing above U+10FFFF (Unicode, table 3-7)
    case 0xe0:
        return byte >= 0xa0;
    case 0xed:
        return byte < 0xa0;
    case 0xf0:
        return byte >= 0x90;
    case 0xf4:
        return byte < 0x90;
    default:
        return true;
    }
}

void cli_utf8_finish(cli_utf8 *utf8, cli_text_fn out, void *state) {
    if (utf8->pending_bytes) out(state, "\xef\xbf\xbd", 3);
    utf8->pending_bytes = 0;
}

void cli_utf8_push(cli_utf8 *utf8, const char *bytes, size_t count, cli_text_fn out, void *state) {
    for (size_t i = 0; i < count; i++) {
        const unsigned char byte = (unsigned char)bytes[i];
        if (utf8->pending_bytes && !may_follow(utf8, byte)) cli_utf8_finish(utf8, out, state);
        if (!utf8->pending_bytes && !sequence_bytes(byte)) {
            out(state, "\xef\xbf\xbd", 3);
            continue;
        }
        utf8->pending[utf8->pending_bytes++] = byte;
        if (utf8->pending_bytes < sequence_bytes(utf8->pending[0])) continue;
        out(state, (const char *)utf8->pending, (size_t)utf8->pending_bytes);
        utf8->pending_bytes = 0;
    }
}

// ---- files -------------------------------------------------------------------------------------------------------------
static char *read_stream(FILE *file, size_t *bytes) {
    size_t capacity = 1 << 16, used = 0;
    char *text = malloc(capacity + 1);
    while (text) {
        used += fread(text + used, 1, capacity - used, file);
        if (used < capacity) break;
        capacity *= 2;
        char *larger = realloc(text, capacity + 1);
        if (!larger) free(text);
        text = larger;
    }
    if (text) text[used] = 0;
    *bytes = used;
    return text;
}

char *cli_read_file(const char *path, size_t *bytes) {
    const bool standard = !strcmp(path, "-");
    FILE *file = standard ? stdin : fopen(path, "rb");
    if (!file) {
        cli_error(RD_E_IO, "%s: %s", path, strerror(errno));
        return NULL;
    }
    char *text = read_stream(file, bytes);
    const bool failed = ferror(file) != 0;
    if (!text || failed) cli_error(RD_E_IO, "%s: %s", path, failed ? strerror(errno) : "out of memory");
    if (failed) {
        free(text);
        text = NULL;
    }
    if (!standard) fclose(file);
    return text;
}

// ---- tokens ------------------------------------------------------------------------------------------------------------
char *cli_render_chat(const rd_tokenizer *tokenizer, const rd_chat_message *messages, int32_t count,
                      size_t *bytes, rd_status *status) {
    size_t needed = 0;
    *status = rd_chat_render(tokenizer, messages, count, 1, NULL, &needed);
    if (*status != RD_OK && *status != RD_E_LIMIT) return NULL;
    char *text = malloc(needed);
    *status = text ? rd_chat_render(tokenizer, messages, count, 1, text, &needed) : RD_E_NOMEM;
    if (*status == RD_OK) {
        *bytes = needed - 1; // without the NUL
        return text;
    }
    free(text);
    return NULL;
}

int32_t *cli_tokenize(const rd_tokenizer *tokenizer, const char *text, size_t bytes, uint32_t flags,
                      int64_t *count, rd_status *status) {
    int64_t capacity = (int64_t)bytes + 8; // a token covers a byte or more; room for BOS and EOS
    int32_t *ids = malloc((size_t)capacity * sizeof *ids);
    *count = capacity;
    *status = ids ? rd_tokenize(tokenizer, text, bytes, flags, ids, count) : RD_E_NOMEM;
    if (*status == RD_OK) return ids;
    free(ids);
    return NULL;
}

rd_status cli_no_tokenizer(void) {
    const char *why = rd_error_text();
    return cli_error(RD_E_UNSUPPORTED, "no tokenizer (%s): needs token ids, by --ids",
                     *why ? why : "the model has none");
}

rd_status cli_read_ids(const char *text, size_t bytes, int32_t **ids, int64_t *count) {
    static const char between[] = ", \t\r\n";
    const size_t most = strlen(text) / 2 + 1;
    *count = 0;
    *ids = malloc(most * sizeof **ids);
    if (!*ids) return cli_error(RD_E_NOMEM, "out of memory");
    if (strlen(text) != bytes) // what stands behind it would be left out without a word
        return cli_error(RD_E_INVALID,
                         "--ids: byte %zu of %zu is 0, needs token ids with commas or spaces between",
                         strlen(text), bytes);
    for (const char *at = text + strspn(text, between + 1); *at;) {
        char *end = NULL;
        const long id = strtol(at, &end, 10);
        if (end == at || id < 0 || id > INT32_MAX || !strchr(between, *end))
            return cli_error(RD_E_INVALID, "--ids: \"%.20s\", needs token ids with commas or spaces between",
                             at);
        (*ids)[(*count)++] = (int32_t)id;
        at = end + strspn(end, between);
    }
    return RD_OK;
}
