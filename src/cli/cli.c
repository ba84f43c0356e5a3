// SPDX-License-Identifier: Apache-2.0
// Option parsing, errors, log, signals and JSON of the commands.
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rd_status cli_error(rd_status status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    fflush(stdout);
    fputs("radiance: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    return status;
}

rd_status cli_fail(rd_status status) {
    const char *text = rd_error_text();
    return cli_error(status, "%s", *text ? text : rd_status_name(status));
}

static const char *env_value(const char *name) {
    rd_env_info info;
    for (int32_t i = 0; rd_env_at(i, &info); i++)
        if (!strcmp(info.name, name)) return info.value;
    return "";
}

static const char *const log_levels[] = {"error", "warn", "info", "debug"};

static int log_level(void) {
    for (int i = 0; i < CLI_COUNT(log_levels); i++)
        if (!strcmp(env_value("RADIANCE_LOG"), log_levels[i])) return i;
    return -1;
}

void cli_log(void *state, rd_log_level level, const char *text) {
    (void)state;
    if ((int)level <= log_level()) fprintf(stderr, "radiance: %s: %s\n", log_levels[level], text);
}

static rd_status open_ctx(const char *device, int64_t threads, bool trust_card, rd_ctx **out) {
    if (log_level() < 0)
        return cli_error(RD_E_INVALID, "RADIANCE_LOG=%s, needs one of: error warn info debug",
                         env_value("RADIANCE_LOG"));
    rd_ctx_options options = {.struct_size = sizeof options,
                              .device = device,
                              .threads = (int32_t)threads,
                              .log = cli_log,
                              .trust_card = trust_card};
    rd_status status = rd_ctx_create(&options, out);
    return status == RD_OK ? RD_OK : cli_fail(status);
}
rd_status cli_open_ctx(const char *device, int64_t threads, rd_ctx **out) {
    return open_ctx(device, threads, false, out);
}
rd_status cli_open_ctx_unchecked(const char *device, int64_t threads, rd_ctx **out) {
    return open_ctx(device, threads, true, out);
}

// ---- signals -------------------------------------------------------------------------------------------------------------
static volatile sig_atomic_t interrupted;
static void on_interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

static void catch_once(int signal_number) {
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(signal_number, &action, NULL);
}

void cli_catch_interrupt(void) {
    catch_once(SIGINT);
    catch_once(SIGTERM);
    catch_once(SIGHUP);
}

bool cli_interrupted(void) {
    return interrupted;
}

void cli_clear_interrupt(void) {
    interrupted = 0;
    catch_once(SIGINT);
    signal(SIGTERM, SIG_DFL); // a chat waits for its user: nothing there would look at the flag
    signal(SIGHUP, SIG_DFL);
}

// ---- options -----------------------------------------------------------------------------------------------------------
static void print_usage(const char *usage, const char *about, const cli_option *options, int count) {
    printf("usage: radiance %s\n\n%s\n", usage, about);
    for (int i = 0; i < count; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", options[i].name, options[i].argument ? " " : "",
                 options[i].argument ? options[i].argument : "");
        printf("%s  %-22s %s\n", i ? "" : "\n", left, options[i].help);
    }
}

static rd_status unknown_option(const char *text, const cli_option *options, int count) {
    char names[512] = "--help";
    for (int i = 0; i < count; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, " %s", options[i].name);
    }
    return cli_error(RD_E_INVALID, "unknown option %s, known: %s", text, names);
}

static rd_status read_int(const cli_option *option, const char *text) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool bounded = option->least || option->most;
    if (end == text || *end)
        return cli_error(RD_E_INVALID, "%s=%s, needs a whole number", option->name, text);
    if (errno && !bounded)
        return cli_error(RD_E_INVALID, "%s=%s, needs a whole number of at most 64 bits", option->name, text);
    if (bounded && (value < option->least || value > option->most))
        return cli_error(RD_E_INVALID, "%s=%s, needs %lld to %lld", option->name, text,
                         (long long)option->least, (long long)option->most);
    *(int64_t *)option->value = value;
    return RD_OK;
}

static rd_status read_real(const cli_option *option, const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value))
        return cli_error(RD_E_INVALID, "%s=%s, needs a number", option->name, text);
    *(double *)option->value = value;
    return RD_OK;
}

static rd_status set_option(const cli_option *option, const char *text) {
    switch (option->kind) {
    case CLI_TEXT:
        *(const char **)option->value = text;
        return RD_OK;
    case CLI_INT:
        return read_int(option, text);
    case CLI_REAL:
        return read_real(option, text);
    case CLI_FLAG:
        break;
    }
    return cli_error(RD_E_INVALID, "%s takes no value, got %s", option->name, text);
}

static const cli_option *find_option(const char *text, size_t bytes, const cli_option *options, int count) {
    for (int i = 0; i < count; i++)
        if (strlen(options[i].name) == bytes && !memcmp(options[i].name, text, bytes)) return &options[i];
    return NULL;
}

// Handles the option at argv[*at]; moves *at over its value.
static rd_status take_option(const cli_option *options, int count, int argc, char **argv, int *at) {
    const char *text = argv[*at], *equals = strchr(text, '=');
    size_t bytes = equals ? (size_t)(equals - text) : strlen(text);
    const cli_option *option = find_option(text, bytes, options, count);
    if (!option) return unknown_option(text, options, count);
    if (equals) return set_option(option, equals + 1);
    if (option->kind == CLI_FLAG) {
        *(bool *)option->value = true;
        return RD_OK;
    }
    if (*at + 1 >= argc) return cli_error(RD_E_INVALID, "%s needs %s", option->name, option->argument);
    return set_option(option, argv[++*at]);
}

rd_status cli_parse(const char *usage, const char *about, const cli_option *options, int option_count,
                    int least_positional, int most_positional, int argc, char **argv, cli_args *args) {
    *args = (cli_args){.items = argv};
    bool options_over = false;
    for (int at = 0; at < argc; at++) {
        char *text = argv[at];
        if (!options_over && !strcmp(text, "--")) {
            options_over = true;
        } else if (!options_over && (!strcmp(text, "--help") || !strcmp(text, "-h"))) {
            print_usage(usage, about, options, option_count);
            args->done = true;
            return RD_OK;
        } else if (!options_over && text[0] == '-' && text[1] == '-') {
            rd_status status = take_option(options, option_count, argc, argv, &at);
            if (status != RD_OK) return status;
        } else {
            args->items[args->count++] = text;
        }
    }
    if (args->count < least_positional) return cli_error(RD_E_INVALID, "usage: radiance %s", usage);
    if (most_positional >= 0 && args->count > most_positional)
        return cli_error(RD_E_INVALID, "unexpected argument %s; usage: radiance %s",
                         args->items[most_positional], usage);
    return RD_OK;
}

rd_status cli_params(char **items, int count, rd_param *params) {
    for (int i = 0; i < count; i++) {
        char *equals = strchr(items[i], '=');
        if (!equals || equals == items[i])
            return cli_error(RD_E_INVALID, "argument %s, needs the form key=value", items[i]);
        *equals = 0;
        char *value = equals + 1, *end;
        errno = 0;
        long long number = strtoll(value, &end, 10);
        bool is_number = *value && !*end && *value != ' ' && *value != '+';
        if (is_number && errno)
            return cli_error(RD_E_INVALID, "%s=%.40s, needs a whole number of at most 64 bits", items[i],
                             value);
        params[i] = (rd_param){items[i], is_number ? RD_PARAM_INT : RD_PARAM_WORD, is_number ? number : 0,
                               is_number ? NULL : value};
    }
    return RD_OK;
}

// ---- output --------------------------------------------------------------------------------------------------------------
rd_status cli_print_json(cJSON *value) {
    char *text = value ? cJSON_Print(value) : NULL;
    cJSON_Delete(value);
    if (!text) return cli_error(RD_E_NOMEM, "out of memory while printing JSON");
    puts(text);
    cJSON_free(text);
    return RD_OK;
}

void cli_json_real(cJSON *object, const char *name, double value) {
    if (isfinite(value))
        cJSON_AddNumberToObject(object, name, value);
    else
        cJSON_AddNullToObject(object, name);
}

void cli_json_text(cJSON *object, const char *name, const char *text) {
    if (text)
        cJSON_AddStringToObject(object, name, text);
    else
        cJSON_AddNullToObject(object, name);
}
