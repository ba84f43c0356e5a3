// SPDX-License-Identifier: Apache-2.0
// radiance tokenize: token ids of texts, one JSON object a line in and out.
#include "cli.h"

#include "radiance_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    const rd_tokenizer *tokenizer;
    uint32_t flags;
    int32_t *ids;
    int64_t capacity;
} job;

// Prints {"ids":[...]}; straight to stdout, as a million numbers need no tree.
static rd_status print_ids(job *j, const char *text) {
    size_t bytes = strlen(text);
    int64_t count = j->capacity;
    rd_status status = rd_tokenize(j->tokenizer, text, bytes, j->flags, j->ids, &count);
    if (count > j->capacity) { // the first text, or a longer one
        int32_t *grown = realloc(j->ids, (size_t)count * sizeof *grown);
        if (!grown) return cli_error(RD_E_NOMEM, "out of memory for %lld ids", (long long)count);
        j->ids = grown;
        j->capacity = count;
        status = rd_tokenize(j->tokenizer, text, bytes, j->flags, j->ids, &count);
    }
    if (status != RD_OK) return cli_fail(status);
    printf("{\"ids\":[");
    for (int64_t i = 0; i < count; i++) printf(i ? ",%d" : "%d", j->ids[i]);
    printf("]}\n");
    return RD_OK;
}

static rd_status run_line(job *j, const char *line, int64_t number) {
    cJSON *json = cJSON_Parse(line);
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(json, "text");
    rd_status status = cJSON_IsString(text) ? print_ids(j, text->valuestring)
                                            : cli_error(RD_E_FORMAT, "line %lld, needs {\"text\": \"...\"}",
                                                        (long long)number);
    cJSON_Delete(json);
    return status;
}

static rd_status run_lines(job *j, const char *path) {
    FILE *file = strcmp(path, "-") ? fopen(path, "r") : stdin;
    if (!file) return cli_error(RD_E_IO, "%s: %s", path, strerror(errno));
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    rd_status status = RD_OK;
    for (int64_t number = 1; status == RD_OK && (length = getline(&line, &room, file)) >= 0; number++) {
        if (length && line[length - 1] == '\n') line[--length] = 0;
        if (length) status = run_line(j, line, number);
    }
    if (status == RD_OK && ferror(file)) status = cli_error(RD_E_IO, "%s: %s", path, strerror(errno));
    free(line);
    if (file != stdin) fclose(file);
    return status;
}

rd_status cli_run_tokenize(int argc, char **argv) {
    const char *jsonl = NULL, *text = NULL;
    bool special = false, add_bos = false;
    const cli_option options[] = {
        {"--jsonl", CLI_TEXT, &jsonl, "FILE",
         "a line {\"text\": ...} in, a line {\"ids\": [...]} out; - = standard input", 0, 0},
        {"--text", CLI_TEXT, &text, "TEXT", "one text", 0, 0},
        {"--special", CLI_FLAG, &special, NULL, "special tokens in the text count as such", 0, 0},
        {"--add-bos", CLI_FLAG, &add_bos, NULL, "begin with BOS, if the model asks for it", 0, 0},
    };
    cli_args args;
    rd_status status = cli_parse("tokenize MODEL --jsonl FILE | --text TEXT [options]",
                                 "Prints the token ids of texts. MODEL is a model folder or a .gguf file.",
                                 options, CLI_COUNT(options), 1, 1, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    if (!jsonl == !text) return cli_error(RD_E_INVALID, "tokenize needs one of --jsonl FILE and --text TEXT");
    rd_tokenizer *tokenizer;
    status = rd_tokenizer_open(args.items[0], &tokenizer);
    if (status != RD_OK) return cli_fail(status);
    job j = {tokenizer, (special ? RD_TOKENIZE_SPECIAL : 0) | (add_bos ? RD_TOKENIZE_ADD_BOS : 0), NULL, 0};
    status = text ? print_ids(&j, text) : run_lines(&j, jsonl);
    free(j.ids);
    rd_tokenizer_close(tokenizer);
    return status;
}
