// SPDX-License-Identifier: Apache-2.0
// The chat loop behind `radiance generate MODEL` on a terminal. Line editing by libedit where the build has it.
#include "chat.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#ifdef RADIANCE_HAVE_LIBEDIT
#include <editline/readline.h>
static char *read_line(void) {
    char *line = readline("> ");
    if (line && *line) add_history(line);
    return line;
}
#else
static char *read_line(void) {
    char *line = NULL;
    size_t capacity = 0;
    fputs("> ", stdout);
    fflush(stdout);
    ssize_t length = getline(&line, &capacity, stdin);
    if (length < 0) {
        free(line);
        return NULL;
    }
    if (length && line[length - 1] == '\n') line[length - 1] = 0;
    return line;
}
#endif

typedef struct conversation {
    rd_chat_message *message;
    int32_t count, capacity;
} conversation;

static bool add_message(conversation *talk, const char *role, const char *content) {
    if (talk->count == talk->capacity) {
        int32_t capacity = talk->capacity ? 2 * talk->capacity : 16;
        rd_chat_message *larger = realloc(talk->message, (size_t)capacity * sizeof *larger);
        if (!larger) return false;
        talk->message = larger;
        talk->capacity = capacity;
    }
    char *copy = strdup(content);
    if (!copy) return false;
    rd_chat_message *message = &talk->message[talk->count++];
    message->role = role;
    message->content = copy;
    return true;
}

static void drop_messages(conversation *talk, int32_t keep) {
    while (talk->count > keep) free((char *)(uintptr_t)talk->message[--talk->count].content);
}

typedef struct turn {
    cli_utf8 utf8;
    char *text;
    size_t bytes, capacity;
} turn;

static void say(void *state, const char *text, size_t bytes) {
    turn *t = state;
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
    if (t->bytes + bytes + 1 > t->capacity) {
        char *larger = realloc(t->text, 2 * (t->bytes + bytes + 1));
        if (!larger) return; // the terminal has it; the next turn sees a shorter answer
        t->text = larger;
        t->capacity = 2 * (t->bytes + bytes + 1);
    }
    memcpy(t->text + t->bytes, text, bytes);
    t->bytes += bytes;
    t->text[t->bytes] = 0;
}

static int on_token(void *state, int32_t id, const char *bytes, size_t count) {
    (void)id;
    turn *t = state;
    cli_utf8_push(&t->utf8, bytes, count, say, t);
    return cli_interrupted();
}

static rd_status take_turn(const cli_runner *runner, const cli_chat_options *options, conversation *talk) {
    const rd_tokenizer *tokenizer = rd_model_tokenizer(runner->model);
    rd_status status;
    size_t bytes = 0;
    int64_t count = 0;
    char *prompt = cli_render_chat(tokenizer, talk->message, talk->count, &bytes, &status);
    int32_t *ids =
        prompt ? cli_tokenize(tokenizer, prompt, bytes, RD_TOKENIZE_SPECIAL, &count, &status) : NULL;
    int32_t *out = malloc((size_t)(options->max_tokens + 1) * sizeof *out);
    turn t = {0};
    rd_generate_result result = {.struct_size = sizeof result};
    if (ids && !out) status = RD_E_NOMEM;
    if (status == RD_OK) status = rd_session_sync(runner->session, ids, count, cli_progress, NULL);
    if (status == RD_OK) {
        const rd_generate_options generate = {.struct_size = sizeof generate,
                                              .max_tokens = options->max_tokens,
                                              .sampling = options->sampling,
                                              .on_token = on_token,
                                              .on_token_state = &t};
        status = rd_generate(runner->session, ids, count, &generate, out, &result);
    }
    cli_utf8_finish(&t.utf8, say, &t);
    putchar('\n');
    if (result.hit_limit) puts("(the context is full: /clear starts anew)");
    if (options->stats)
        fprintf(stderr, "decode %" PRId64 " tokens, %.1f tok/s\n", result.generated,
                result.decode_seconds > 0 ? (double)result.generated / result.decode_seconds : 0.0);
    if (t.text && !add_message(talk, "assistant", t.text)) status = RD_E_NOMEM;
    free(t.text);
    free(out);
    free(ids);
    free(prompt);
    return status;
}

rd_status cli_chat(const cli_runner *runner, const cli_chat_options *options) {
    if (!rd_model_tokenizer(runner->model)) return cli_no_tokenizer();
    conversation talk = {0};
    if (options->system && !add_message(&talk, "system", options->system)) {
        free(talk.message);
        return RD_E_NOMEM;
    }
    const int32_t start = talk.count;
    cli_clear_interrupt();
    puts("/clear starts anew, /quit or Ctrl-D ends, Ctrl-C stops an answer.");
    for (char *line; (line = read_line()) && strcmp(line, "/quit"); free(line)) {
        if (!*line) continue;
        if (!strcmp(line, "/clear")) {
            drop_messages(&talk, start);
            continue;
        }
        const int32_t before = talk.count;
        cli_clear_interrupt();
        rd_status status = add_message(&talk, "user", line) ? take_turn(runner, options, &talk) : RD_E_NOMEM;
        if (status != RD_OK && status != RD_E_CANCELLED) {
            cli_fail(status);
            drop_messages(&talk, before); // the turn did not happen
        }
    }
    drop_messages(&talk, 0);
    free(talk.message);
    return RD_OK;
}
