// SPDX-License-Identifier: Apache-2.0
// Command-line options of one launch: kernel, geometry, arguments, checks; and printing of its outputs.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include "cmd.h"
#include "fp8.h"

static bool complain(const char *what, const char *seen) {
    fprintf(stderr, "gfx12sim: %s '%s'\n", what, seen);
    return false;
}

void *gs_read_file(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    void *data = NULL;
    long size = -1;
    if (f && fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) >= 0 && fseek(f, 0, SEEK_SET) == 0)
        data = malloc((size_t)size + 1);
    if (!data || fread(data, 1, (size_t)size, f) != (size_t)size) {
        fprintf(stderr, "gfx12sim: cannot read '%s': %s\n", path, strerror(errno));
        free(data);
        data = NULL;
    }
    if (f) fclose(f);
    *bytes = data ? (size_t)size : 0;
    return data;
}

gs_module *gs_open_module(gs_mem *mem, const char *path) {
    size_t bytes;
    void *image = gs_read_file(path, &bytes);
    gs_module *module = NULL;
    gs_error error;
    if (image && gs_module_load(mem, image, bytes, &module, &error))
        fprintf(stderr, "gfx12sim: %s: %s\n", path, error.message);
    free(image);
    return module;
}

static size_t type_bytes(const char *type) {
    static const struct {
        const char *name;
        size_t bytes;
    } types[] = {{"f32", 4}, {"f16", 2}, {"bf16", 2}, {"fp8", 1}, {"f64", 8}, {"i8", 1}, {"u8", 1},
                 {"i16", 2}, {"u16", 2}, {"i32", 4},  {"u32", 4}, {"i64", 8}, {"u64", 8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i].name) == 0) return types[i].bytes;
    return 0;
}

static double value_at(const gs_cmd_buffer *b, size_t i) {
    const unsigned char *p = (const unsigned char *)b->base + i * type_bytes(b->type);
    u32 word = 0;
    memcpy(&word, p, type_bytes(b->type) < 4 ? type_bytes(b->type) : 4);
    if (strcmp(b->type, "f32") == 0) return gs_f32(word);
    if (strcmp(b->type, "f16") == 0) return gs_f16_to_f32_scalar(word);
    if (strcmp(b->type, "bf16") == 0) return gs_f32(word << 16);
    if (strcmp(b->type, "fp8") == 0) return gs_fp8_to_f32(word);
    if (strcmp(b->type, "i8") == 0) return (int8_t)word;
    if (strcmp(b->type, "i16") == 0) return (int16_t)word;
    if (strcmp(b->type, "i32") == 0) return (i32)word;
    if (type_bytes(b->type) < 8) return word;
    u64 wide;
    memcpy(&wide, p, 8);
    return strcmp(b->type, "f64") == 0   ? gs_f64(wide)
           : strcmp(b->type, "i64") == 0 ? (double)(i64)wide
                                         : (double)wide;
}

// in:TYPE:..., out:TYPE:..., inout:TYPE:...
static bool add_buffer(gs_cmd_launch *c, char *text, u64 *address) {
    char *direction = strtok(text, ":"), *type = strtok(NULL, ":"), *what = strtok(NULL, ":"),
         *target = strtok(NULL, ":");
    if (!direction || !type || !what || !type_bytes(type))
        return complain("buffer argument needs in|out|inout:TYPE:COUNT or :@FILE, got", text);
    if (c->buffer_count == GS_MAX_CMD_ARGS) return complain("too many buffers at", text);
    gs_cmd_buffer *b = &c->buffers[c->buffer_count];
    void *data = NULL;
    snprintf(b->type, sizeof b->type, "%s", type);
    if (*what == '@') {
        if (!(data = gs_read_file(what + 1, &b->bytes))) return false;
    } else
        b->bytes = (size_t)strtoull(what, NULL, 0) * type_bytes(type);
    b->output = strcmp(direction, "in") != 0;
    b->write_to = target && *target == '@' ? target + 1 : NULL;
    if (!b->bytes || gs_mem_alloc(c->mem, b->bytes, &b->base)) {
        free(data);
        return complain("cannot allocate buffer", what);
    }
    if (data)
        memcpy(b->base, data, b->bytes);
    else
        memset(b->base, 0, b->bytes);
    free(data);
    *address = (u64)(uintptr_t)b->base;
    c->buffer_count++;
    return true;
}

// A number of one of the types; 16-bit and 8-bit floats other than f16 only come in buffers.
static bool scalar_bits(const char *type, const char *text, u64 *value) {
    char *end;
    double d = strtod(text, &end);
    float f = (float)d;
    if (end == text || *end || strcmp(type, "bf16") == 0 || strcmp(type, "fp8") == 0) return false;
    *value = 0;
    if (strcmp(type, "f32") == 0)
        memcpy(value, &f, 4);
    else if (strcmp(type, "f64") == 0)
        memcpy(value, &d, 8);
    else if (strcmp(type, "f16") == 0)
        *value = gs_f32_to_f16_scalar(f);
    else {
        errno = 0;
        *value = *text == '-' ? (u64)strtoll(text, &end, 0) : strtoull(text, &end, 0);
        return end != text && !*end && !errno;
    }
    return true;
}

static bool add_argument(gs_cmd_launch *c, size_t index, char *text, u32 *lds_next) {
    const gs_kernel_info *info = gs_kernel_describe(c->launch.kernel);
    if (index >= info->explicit_arg_count) return complain("the kernel takes no argument for", text);
    const gs_arg *a = &info->args[index];
    char *colon = strchr(text, ':');
    if (!colon) return complain("argument needs TYPE:VALUE, got", text);
    u64 value = 0;
    size_t bytes = 8;
    if (strncmp(text, "in", 2) == 0 || strncmp(text, "out", 3) == 0) {
        if (!add_buffer(c, text, &value)) return false;
    } else if (strncmp(text, "lds:", 4) == 0) {
        value = *lds_next;
        *lds_next += (u32)strtoul(colon + 1, NULL, 0);
        bytes = 4;
    } else {
        char type[8];
        snprintf(type, sizeof type, "%.*s", (int)(colon - text), text);
        bytes = type_bytes(type);
        if (!bytes) return complain("unknown type of argument", text);
        if (!scalar_bits(type, colon + 1, &value)) return complain("not a value of its type:", text);
    }
    if (bytes != a->size_bytes) {
        fprintf(stderr, "gfx12sim: argument %zu (%s) has %u bytes, '%s' gives %zu\n", index, a->name,
                a->size_bytes, text, bytes);
        return false;
    }
    memcpy(c->kernarg + a->offset_bytes, &value, bytes);
    return true;
}

static bool three(const char *text, u32 *out) {
    char *end = (char *)(uintptr_t)text;
    for (int i = 0; i < 3; i++) {
        out[i] = *end ? (u32)strtoul(end, &end, 0) : 1;
        if (*end == ',' || *end == 'x') end++;
    }
    return *end == 0;
}

static bool parse_checks(const char *text, u32 *checks) {
    if (strcmp(text, "all") == 0) return *checks = GS_CHECKS_ALL, true;
    *checks = 0;
    if (strcmp(text, "none") == 0) return true;
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok(copy, ","); word; word = strtok(NULL, ",")) {
        u32 i = 1;
        while (i < GS_CHECK_COUNT && strcmp(word, gs_check_name((gs_check)i)) != 0) i++;
        if (i == GS_CHECK_COUNT) return complain("unknown check", word);
        *checks |= 1u << i;
    }
    return true;
}

static bool number(const char *text, u64 *value) {
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 0);
    return *text != '-' && end != text && !*end && !errno;
}

static bool parse_option(gs_cmd_launch *c, const char *name, char *value) {
    gs_launch *l = &c->launch;
    if (strcmp(name, "--grid") == 0) return three(value, l->grid) || complain("bad --grid", value);
    if (strcmp(name, "--block") == 0) return three(value, l->block) || complain("bad --block", value);
    if (strcmp(name, "--checks") == 0) return parse_checks(value, &l->checks);
    const struct {
        const char *name;
        u64 *wide;
        u32 *narrow;
    } numbers[] = {{"--schedule-seed", &l->schedule_seed, NULL},
                   {"--max-steps", &l->max_wave_steps, NULL},
                   {"--threads", NULL, &l->threads},
                   {"--lds", NULL, &l->dynamic_lds_bytes},
                   {"--group", NULL, &l->trace_group},
                   {"--wave", NULL, &l->trace_wave}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        u64 v;
        if (strcmp(name, numbers[i].name) != 0) continue;
        if (!number(value, &v) || (numbers[i].narrow && v > UINT32_MAX))
            return complain("needs a number:", value);
        if (numbers[i].wide)
            *numbers[i].wide = v;
        else
            *numbers[i].narrow = (u32)v;
        return true;
    }
    return complain("unknown option", name);
}

static bool choose_kernel(gs_cmd_launch *c, int argc, char **argv) {
    const char *name = NULL;
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--kernel") == 0) name = argv[i + 1];
    const gs_kernel *kernel = name                                     ? gs_module_kernel(c->module, name)
                              : gs_module_kernel_count(c->module) == 1 ? gs_module_kernel_at(c->module, 0)
                                                                       : NULL;
    if (!kernel) {
        fprintf(stderr, "gfx12sim: %s%s; the file has:\n", name ? "no kernel " : "--kernel is needed",
                name ? name : "");
        for (size_t i = 0; i < gs_module_kernel_count(c->module); i++)
            fprintf(stderr, "  %s\n", gs_kernel_describe(gs_module_kernel_at(c->module, i))->name);
        return false;
    }
    gs_launch_init(&c->launch, kernel);
    const gs_kernel_info *info = gs_kernel_describe(kernel);
    if (info->required_block[0]) memcpy(c->launch.block, info->required_block, sizeof c->launch.block);
    return true;
}

bool gs_cmd_launch_parse(gs_cmd_launch *c, int argc, char **argv) {
    memset(c, 0, sizeof *c);
    if (argc < 1) return complain("needs a code object;", "try gfx12sim without arguments");
    if (gs_mem_create(&c->mem) || !(c->module = gs_open_module(c->mem, argv[0])) ||
        !choose_kernel(c, argc, argv))
        return false;
    const gs_kernel_info *info = gs_kernel_describe(c->launch.kernel);
    c->kernarg = calloc(1, (size_t)info->kernarg_bytes + 1);
    size_t arguments = 0;
    u32 lds = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            c->json = true;
            continue;
        }
        if (strcmp(argv[i], "--lines") == 0) continue;
        if (i + 1 == argc) return complain("no value for", argv[i]);
        char *name = argv[i++];
        if (strcmp(name, "--kernel") == 0) continue;
        if (strcmp(name, "--arg") == 0) {
            if (!c->kernarg || !add_argument(c, arguments++, argv[i], &lds)) return false;
        } else if (!parse_option(c, name, argv[i]))
            return false;
    }
    if (arguments != info->explicit_arg_count) {
        fprintf(stderr, "gfx12sim: %s takes %zu arguments, got %zu\n", info->name, info->explicit_arg_count,
                arguments);
        return false;
    }
    c->launch.dynamic_lds_bytes += lds;
    c->launch.kernarg = c->kernarg;
    c->launch.kernarg_bytes = info->kernarg_bytes;
    return true;
}

void gs_cmd_launch_free(gs_cmd_launch *c) {
    gs_module_free(c->module);
    gs_mem_destroy(c->mem);
    free(c->kernarg);
}

static bool write_output(const gs_cmd_buffer *b) {
    FILE *f = fopen(b->write_to, "wb");
    bool ok = f && fwrite(b->base, 1, b->bytes, f) == b->bytes;
    if (f && fclose(f)) ok = false;
    return ok || complain("cannot write", b->write_to);
}

static void print_values(const gs_cmd_buffer *b, bool json) {
    for (size_t k = 0; k < b->bytes / type_bytes(b->type) && k < 8; k++) {
        double v = value_at(b, k);
        if (json)
            printf(isfinite(v) ? "%s%.9g" : "%snull", k ? ", " : "", v);
        else
            printf(" %.9g", v);
    }
}

static bool print_outputs(const gs_cmd_launch *c) {
    bool first = true;
    if (c->json) printf("{\"status\": \"ok\", \"buffers\": [");
    for (size_t i = 0; i < c->buffer_count; i++) {
        const gs_cmd_buffer *b = &c->buffers[i];
        if (!b->output) continue;
        if (b->write_to && !write_output(b)) return false;
        if (c->json) {
            printf("%s{\"buffer\": %zu, \"type\": \"%s\", \"bytes\": %zu, \"first\": [", first ? "" : ", ", i,
                   b->type, b->bytes);
            print_values(b, true);
            printf("]}");
        } else if (!b->write_to) {
            printf("buffer %zu (%s, %zu bytes):", i, b->type, b->bytes);
            print_values(b, false);
            printf("\n");
        }
        first = false;
    }
    if (c->json) printf("]}\n");
    return true;
}

int gs_cmd_run(int argc, char **argv) {
    gs_cmd_launch c;
    gs_error error;
    int code = 2;
    if (gs_cmd_launch_parse(&c, argc, argv)) {
        gs_status status = gs_launch_run(c.mem, &c.launch, &error);
        code = status ? gs_cmd_report(stdout, &error, c.json) : print_outputs(&c) ? 0 : 2;
    }
    gs_cmd_launch_free(&c);
    return code;
}

static gs_class class_of(const char *mnemonic) {
    for (size_t i = 0; i < gs_row_count(); i++)
        if (strcmp(gs_row_mnemonic(i), mnemonic) == 0) return gs_row_class(i);
    return GS_CLASS_HINT;
}

// Waits that blocked, counted at the instructions that they blocked on.
static void sum_stalls(const gs_module *m, const gs_line_stats *lines, uint64_t *by_class) {
    for (size_t i = 0; i < gs_module_line_count(m); i++)
        if (lines[i].blocking) by_class[class_of(gs_module_line(m, i).mnemonic)] += lines[i].blocking;
}

static void print_lines(const gs_module *m, const gs_line_stats *lines, bool json) {
    if (!json)
        printf("%12s %10s %10s %10s  line\n", "hits", "blocking", "lds_extra", "lines128");
    else
        printf(",\n  \"lines\": [");
    bool first = true;
    for (size_t i = 0; i < gs_module_line_count(m); i++) {
        const gs_line_stats *l = &lines[i];
        if (!l->hits) continue;
        gs_line line = gs_module_line(m, i);
        if (!json)
            printf("%12llu %10llu %10llu %10llu  %s\n", (unsigned long long)l->hits,
                   (unsigned long long)l->blocking, (unsigned long long)l->lds_conflict_cycles,
                   (unsigned long long)l->lines_touched, line.text);
        else {
            printf(
                "%s\n    {\"va\": %llu, \"hits\": %llu, \"blocking\": %llu, \"lds_conflict_cycles\": %llu, "
                "\"lines_128\": %llu, \"text\": ",
                first ? "" : ",", (unsigned long long)line.va, (unsigned long long)l->hits,
                (unsigned long long)l->blocking, (unsigned long long)l->lds_conflict_cycles,
                (unsigned long long)l->lines_touched);
            gs_cmd_print_text(stdout, line.text);
            printf("}");
        }
        first = false;
    }
    if (json) printf("]");
}

int gs_cmd_stats(int argc, char **argv) {
    gs_cmd_launch c;
    gs_error error;
    gs_stats stats = {0};
    uint64_t by_stall[GS_CLASS_COUNT] = {0};
    int code = 2;
    bool by_line = false;
    for (int i = 0; i < argc; i++) by_line |= strcmp(argv[i], "--lines") == 0;
    if (gs_cmd_launch_parse(&c, argc, argv)) {
        gs_line_stats *lines = calloc(gs_module_line_count(c.module) + 1, sizeof *lines);
        c.launch.stats = &stats;
        c.launch.lines = lines;
        if (gs_launch_run(c.mem, &c.launch, &error))
            code = gs_cmd_report(stdout, &error, c.json);
        else {
            code = 0;
            if (lines) sum_stalls(c.module, lines, by_stall);
            gs_cmd_print_stats(stdout, &stats, lines ? by_stall : NULL, c.json);
            if (by_line && lines) print_lines(c.module, lines, c.json);
            printf(c.json ? "\n}\n" : "");
        }
        free(lines);
    }
    gs_cmd_launch_free(&c);
    return code;
}

static void print_trace(void *context, const char *text) {
    const gs_cmd_launch *c = context;
    if (c->json) gs_cmd_print_text(stdout, text);
    printf("%s\n", c->json ? "" : text);
}

int gs_cmd_trace(int argc, char **argv) {
    gs_cmd_launch c;
    gs_error error;
    int code = 2;
    if (gs_cmd_launch_parse(&c, argc, argv)) {
        c.launch.trace = print_trace;
        c.launch.trace_context = &c;
        code = gs_launch_run(c.mem, &c.launch, &error) ? gs_cmd_report(stdout, &error, c.json) : 0;
    }
    gs_cmd_launch_free(&c);
    return code;
}
