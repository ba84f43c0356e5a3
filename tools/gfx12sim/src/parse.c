// SPDX-License-Identifier: Apache-2.0
// From LLVM's text of one instruction to a gs_op. Done once per distinct instruction of a module, so clarity
// goes before speed. The row's signature says how many operands there are and what their constants mean.
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include "module.h"
#include "simd.h"

enum { MAX_PIECES = 12, MAX_PIECE_BYTES = 128 };

typedef struct pieces {
    char operand[MAX_PIECES][MAX_PIECE_BYTES];
    u32 operands;
    char modifier[MAX_PIECES][MAX_PIECE_BYTES];
    u32 modifiers;
} pieces;

static bool starts(const char *text, const char *word) {
    return strncmp(text, word, strlen(word)) == 0;
}

static bool put(char (*list)[MAX_PIECE_BYTES], u32 *count, const char *text, size_t bytes) {
    while (bytes && text[bytes - 1] == ' ') bytes--;
    if (!bytes) return true;
    if (*count == MAX_PIECES || bytes >= MAX_PIECE_BYTES) return false;
    memcpy(list[*count], text, bytes);
    list[(*count)++][bytes] = 0;
    return true;
}

// A word with ':' that is no register range is a modifier; so are these bare words.
static bool is_modifier(const char *word, size_t bytes) {
    static const char *const bare[] = {"clamp", "offen",      "idxen",          "tfe", "gds", "lds",
                                       "nv",    "row_mirror", "row_half_mirror"};
    for (size_t i = 0; i < sizeof bare / sizeof *bare; i++)
        if (strlen(bare[i]) == bytes && memcmp(word, bare[i], bytes) == 0) return true;
    const char *colon = memchr(word, ':', bytes), *bracket = memchr(word, '[', bytes);
    return colon && (!bracket || colon < bracket);
}

// Operands are separated by commas, modifiers by blanks; both may hold commas inside brackets.
static bool split(const char *text, pieces *p) {
    int depth = 0;
    const char *start = text;
    p->operands = p->modifiers = 0;
    for (const char *c = text;; c++) {
        if (*c == '[' || *c == '(') depth++;
        if (*c == ']' || *c == ')') depth--;
        if (*c && (depth || (*c != ',' && *c != ' '))) continue;
        if (c > start) {
            bool modifier = is_modifier(start, (size_t)(c - start));
            if (!(modifier ? put(p->modifier, &p->modifiers, start, (size_t)(c - start))
                           : put(p->operand, &p->operands, start, (size_t)(c - start))))
                return false;
        }
        if (!*c) return true;
        start = c + 1;
    }
}

static u32 bits32(float f) {
    u32 u;
    memcpy(&u, &f, 4);
    return u;
}
static u64 bits64(double d) {
    u64 u;
    memcpy(&u, &d, 8);
    return u;
}

// A constant means what its operand's type says; 16-bit types sit in the low half.
static u64 constant_bits(const char *text, char type) {
    bool real = strchr(text, '.') != NULL, literal = strstr(text, "0x") != NULL;
    if (real) {
        double d = strtod(text, NULL);
        // LLVM prints 1/(2*pi) with as many digits as the operand has; the hardware constant is exact per type.
        if (starts(text, "0.15915494")) d = 0.15915494309189532;
        if (gs_in("UFIS", type)) return bits64(d);
        if (gs_in("hwTpq", type)) return gs_f32_to_f16_scalar((float)d);
        if (type == 'b') return bits32((float)d) >> 16;
        return bits32((float)d);
    }
    i64 v = strtoll(text, NULL, 0);
    if (type == 'F' && literal) return (u64)v << 32;
    if (type == 'I' && literal) return (u64)(i64)(i32)v;
    if (gs_in("UFIS", type)) return (u64)v;
    return (u32)v;
}

static bool named_register(const char *t, gs_opnd *o) {
    static const struct {
        const char *name;
        u8 kind, dwords;
        u16 reg;
        u64 value;
    } names[] = {
        {"vcc_lo", OPND_SGPR, 1, SGPR_VCC, 0},
        {"vcc_hi", OPND_SGPR, 1, SGPR_VCC + 1, 0},
        {"vcc", OPND_SGPR, 2, SGPR_VCC, 0},
        {"exec_lo", OPND_SGPR, 1, SGPR_EXEC, 0},
        {"exec_hi", OPND_SGPR, 1, SGPR_EXEC + 1, 0},
        {"exec", OPND_SGPR, 2, SGPR_EXEC, 0},
        {"m0", OPND_SGPR, 1, SGPR_M0, 0},
        {"null", OPND_SGPR, 1, SGPR_NULL, 0},
        {"src_scc", OPND_SCC, 1, 0, 0},
        {"scc", OPND_SCC, 1, 0, 0},
        {"off", OPND_OFF, 0, 0, 0},
        {"src_shared_base", OPND_CONST, 2, 0, (u64)GS_APERTURE_SHARED_HI << 32},
        {"src_private_base", OPND_CONST, 2, 0, (u64)GS_APERTURE_PRIVATE_HI << 32},
        {"src_shared_limit", OPND_CONST, 2, 0, (u64)GS_APERTURE_SHARED_HI << 32 | 0xffffffffu},
        {"src_private_limit", OPND_CONST, 2, 0, (u64)GS_APERTURE_PRIVATE_HI << 32 | 0xffffffffu},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(t, names[i].name) == 0) {
            o->kind = names[i].kind, o->dwords = names[i].dwords, o->reg = names[i].reg,
            o->value = names[i].value;
            return true;
        }
    return false;
}

// v5, v[0:3], s7, ttmp[2:3]
static bool numbered_register(const char *t, gs_opnd *o) {
    u32 base = 0, limit = 106;
    const char *digits = t + 1;
    if (t[0] == 'v')
        o->kind = OPND_VGPR, limit = GS_VGPRS;
    else if (t[0] == 's')
        o->kind = OPND_SGPR;
    else if (starts(t, "ttmp"))
        o->kind = OPND_SGPR, base = SGPR_TTMP, limit = 16, digits = t + 4;
    else
        return false;
    char *end;
    bool range = *digits == '[';
    if (!isdigit((unsigned char)digits[range])) return false;
    unsigned long first = strtoul(digits + range, &end, 10), last = first;
    if (range && *end == ':') last = strtoul(end + 1, &end, 10);
    if (range && *end++ != ']') return false;
    if (*end || last < first || last >= limit || last - first > 31) return false;
    o->reg = (u16)(base + first);
    o->dwords = (u8)(last - first + 1);
    return true;
}

static bool parse_operand(gs_module *m, gs_opnd *o, const char *text, char type) {
    char t[MAX_PIECE_BYTES];
    memset(o, 0, sizeof *o);
    o->type = (u8)type;
    snprintf(t, sizeof t, "%s", text);
    char *s = t;
    if (*s == '-' && (s[1] == '|' || isalpha((unsigned char)s[1]))) o->neg = true, s++;
    if (starts(s, "neg(")) o->neg = true, s += 4, s[strlen(s) - 1] = 0;
    size_t n = strlen(s);
    if (*s == '|' && n > 2 && s[n - 1] == '|') o->abs = true, s[n - 1] = 0, s++;
    n = strlen(s);
    if (n > 2 && (strcmp(s + n - 2, ".l") == 0 || strcmp(s + n - 2, ".h") == 0))
        o->hi = s[n - 1] == 'h', s[n - 2] = 0;
    if (named_register(s, o)) {
        if (o->kind == OPND_CONST) o->lanes = gs_konst_lanes(m, o->value);
        return true;
    }
    if (numbered_register(s, o)) return true;
    // A literal dword whose value an inline constant could have given is printed as lit(...).
    if (starts(s, "lit(") && s[strlen(s) - 1] == ')') s[strlen(s) - 1] = 0, s += 4;
    if (*s != '-' && !isdigit((unsigned char)*s)) return false;
    o->kind = OPND_CONST;
    o->dwords = gs_in("UFIS", type) ? 2 : 1;
    o->value = constant_bits(s, type);
    o->lanes = gs_konst_lanes(m, o->value);
    return o->lanes != NULL;
}

static u8 bit_list(const char *text) { // "[1,0,1]" -> bits
    u8 bits = 0, at = 0;
    for (; *text; text++)
        if (*text == '0' || *text == '1') bits |= (u8)((*text - '0') << at++);
    return bits;
}

static int dpp_source(const char *name, int n, const int *perm, int lane) {
    int row = lane & ~15, at = lane & 15;
    if (strcmp(name, "quad_perm") == 0) return (lane & ~3) + perm[lane & 3];
    if (strcmp(name, "dpp8") == 0) return (lane & ~7) + perm[lane & 7];
    if (strcmp(name, "row_shl") == 0) return at + n < 16 ? lane + n : -1;
    if (strcmp(name, "row_shr") == 0) return at - n >= 0 ? lane - n : -1;
    if (strcmp(name, "row_ror") == 0) return row + ((at - n) & 15);
    if (strcmp(name, "row_mirror") == 0) return row + 15 - at;
    if (strcmp(name, "row_half_mirror") == 0) return (lane & ~7) + 7 - (lane & 7);
    if (strcmp(name, "row_share") == 0) return row + n;
    if (strcmp(name, "row_xmask") == 0) return row + (at ^ n);
    return -2;
}

// DPP lane maps: RDNA4 ISA guide, "Data Parallel Processing".
static bool parse_dpp(gs_module *m, gs_op *op, const char *name, const char *value, const pieces *p) {
    gs_dpp *d = gs_arena_alloc(&m->arena, sizeof *d, 8);
    if (!d) return false;
    int perm[8] = {0}, count = 0;
    for (const char *c = value; *c && count < 8; c++)
        if (isdigit((unsigned char)*c) && *value == '[') perm[count++] = *c - '0';
    for (int lane = 0; lane < GS_LANES; lane++)
        d->from[lane] = (signed char)dpp_source(name, atoi(value), perm, lane);
    u32 rows = 15, banks = 15;
    for (u32 i = 0; i < p->modifiers; i++) {
        const char *t = p->modifier[i];
        if (starts(t, "row_mask:")) rows = (u32)strtoul(t + 9, NULL, 0);
        if (starts(t, "bank_mask:")) banks = (u32)strtoul(t + 10, NULL, 0);
        if (starts(t, "bound_ctrl:")) d->bound_ctrl = true;
        if (starts(t, "fi:1")) d->fetch_inactive = true;
    }
    for (int lane = 0; lane < GS_LANES; lane++)
        if (rows >> (lane / 16) & 1 && banks >> (lane / 4 % 4) & 1) d->write_mask |= 1u << lane;
    op->dpp = d;
    return true;
}

static bool parse_modifier(gs_module *m, gs_op *op, const char *text, const pieces *p) {
    static const char *const dpp[] = {"quad_perm",       "dpp8",      "row_shl",
                                      "row_shr",         "row_ror",   "row_mirror",
                                      "row_half_mirror", "row_share", "row_xmask"};
    char name[MAX_PIECE_BYTES];
    const char *colon = strchr(text, ':'), *value = colon ? colon + 1 : "1";
    snprintf(name, sizeof name, "%.*s", (int)(colon ? colon - text : (long)strlen(text)), text);
    for (size_t i = 0; i < sizeof dpp / sizeof *dpp; i++)
        if (strcmp(name, dpp[i]) == 0) return parse_dpp(m, op, name, value, p);
    if (strcmp(name, "clamp") == 0)
        op->clamp = true;
    else if (strcmp(name, "mul") == 0)
        op->omod = *value == '2' ? 1 : 2;
    else if (strcmp(name, "div") == 0)
        op->omod = 3;
    else if (strcmp(name, "op_sel") == 0)
        op->op_sel = bit_list(value);
    else if (strcmp(name, "op_sel_hi") == 0)
        op->op_sel_hi = bit_list(value);
    else if (strcmp(name, "neg_lo") == 0)
        op->neg_lo = bit_list(value);
    else if (strcmp(name, "neg_hi") == 0)
        op->neg_hi = bit_list(value);
    else if (strcmp(name, "byte_sel") == 0)
        op->byte_sel = (u8)atoi(value);
    else if (strcmp(name, "index_key") == 0)
        op->index_key = (u8)atoi(value);
    else if (strcmp(name, "offset") == 0) { // swizzle(...) keeps its text; ds_swizzle reads the encoding
        if (!starts(value, "swizzle")) op->offset = (i32)strtol(value, NULL, 0);
    } else if (strcmp(name, "offset0") == 0)
        op->offset = (i32)strtol(value, NULL, 0);
    else if (strcmp(name, "offset1") == 0)
        op->offset1 = (i32)strtol(value, NULL, 0);
    else if (strcmp(name, "offen") == 0)
        op->offen = true;
    else if (strcmp(name, "idxen") == 0)
        op->idxen = true;
    else if (strcmp(name, "th") == 0)
        op->atomic_return = strstr(value, "ATOMIC") && strstr(value, "RETURN");
    else if (strcmp(name, "scope") == 0)
        op->scope = strstr(value, "SYS")   ? SCOPE_SYS
                    : strstr(value, "DEV") ? SCOPE_DEV
                    : strstr(value, "SE")  ? SCOPE_SE
                                           : SCOPE_CU;
    else
        return starts(text, "row_mask") || starts(text, "bank_mask") || starts(text, "bound_ctrl") ||
               starts(text, "fi:") || starts(text, "wait_");
    return true;
}

static void note_scalars(u64 *mask, const gs_opnd *o) {
    for (u32 i = 0; o->kind == OPND_SGPR && o->reg != SGPR_NULL && i < o->dwords && o->reg + i < 128; i++)
        mask[(o->reg + i) / 64] |= 1ull << ((o->reg + i) % 64);
}

static void note_use(gs_op *op, const gs_opnd *o, bool write) {
    note_scalars(write ? op->swrite : op->sread, o);
    if (o->kind != OPND_VGPR) return;
    u8 *count = write ? &op->vwrite_count : &op->vread_count;
    if (write)
        op->vwrite[*count].reg = o->reg, op->vwrite[*count].count = o->dwords;
    else
        op->vread[*count].reg = o->reg, op->vread[*count].count = o->dwords;
    ++*count;
}

static u32 suffix_bytes(const char *mnemonic, size_t n) {
    static const char *const ends[] = {"_e64_dpp", "_dpp", "_e32", "_e64"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t e = strlen(ends[i]);
        if (n > e && memcmp(mnemonic + n - e, ends[i], e) == 0) return (u32)e;
    }
    return 0;
}

// True when nothing needs the general driver: whole registers, no modifiers.
static bool is_plain(const gs_op *op) {
    if (op->clamp || op->omod || op->dpp) return false;
    if (!gs_in("ufUFIm=", op->row->sig[0]) || op->row->flags & ROW_MERGE_DST) return false;
    for (u32 i = 0; i < op->nsrc; i++)
        if (op->src[i].neg || op->src[i].abs || op->src[i].hi || !gs_in("ufUFIm", op->src[i].type))
            return false;
    return true;
}

static bool fill_operands(gs_module *m, gs_op *op, const pieces *p) {
    const char *sig = op->row->sig;
    u32 at = 0;
    bool source = false;
    for (; *sig; sig++) {
        if (*sig == '=') {
            source = true;
            continue;
        }
        if (*sig == 'R' && !op->atomic_return) continue; // destination of an atomic that returns nothing
        gs_opnd *o = source ? &op->src[op->nsrc] : op->ndst ? &op->sdst : &op->dst;
        char type = *sig;
        if (type == '+') {
            *o = op->dst;
            o->type = op->dst.type;
            op->nsrc++;
            note_use(op, o, false);
            continue;
        }
        if (source && op->nsrc == GS_MAX_SRC) return false;
        if (type == 'x') type = op->op_sel_hi >> op->nsrc & 1 ? 'h' : 'f';
        if (at < p->operands) {
            if (type == 'i') {
                memset(o, 0, sizeof *o);
                o->kind = OPND_CONST;
                o->value = strtoull(p->operand[at], NULL, 0);
                at++;
            } else if (!parse_operand(m, o, p->operand[at++], type))
                return false;
        } else if (type == 'm')
            parse_operand(m, o, "vcc_lo", 'm'); // printed only when it is not implied
        else
            return false;
        o->type = (u8)*sig;
        if (gs_in("wh", *sig) && source && o->kind != OPND_VGPR && op->op_sel >> op->nsrc & 1) o->hi = true;
        note_use(op, o, !source);
        if (source)
            op->nsrc++;
        else
            op->ndst++;
    }
    if (at != p->operands) return false;
    if (op->atomic_return && !op->ndst &&
        op->row->cls == GS_CLASS_ATOMIC) { // buffer form: returns into its data
        op->dst = op->src[0];
        op->ndst = 1;
        note_use(op, &op->dst, true);
    }
    return true;
}

static bool check_widths(const gs_op *op) {
    const gs_opnd *all[GS_MAX_SRC + 2] = {&op->dst, &op->sdst};
    for (u32 i = 0; i < op->nsrc; i++) all[2 + i] = &op->src[i];
    for (u32 i = 0; i < op->nsrc + 2u; i++) {
        const gs_opnd *o = all[i];
        if (!o->type || o->kind == OPND_CONST || o->kind == OPND_SCC || o->kind == OPND_OFF) continue;
        bool wide = gs_in("UFIS", o->type), any = gs_in("rR", o->type);
        if (o->kind == OPND_SGPR && o->reg == SGPR_NULL) continue;
        if (!any && o->dwords != (wide ? 2 : 1)) return false;
        if (o->kind == OPND_SGPR && o->reg + o->dwords > 128) return false;
        if (o->kind == OPND_VGPR && o->reg + o->dwords > GS_VGPRS) return false;
        if (o->kind == OPND_VGPR && gs_in("msSt", o->type)) return false;
    }
    return true;
}

static bool parse_single(gs_module *m, gs_op *op, const char *text) {
    size_t n = strcspn(text, " ");
    op->row = gs_row_find(text, n - suffix_bytes(text, n));
    if (!op->row) op->row = gs_row_find(text, n);
    if (!op->row) return false;
    pieces p = {.operands = 0};
    op->cls = op->row->cls;
    op->exec = op->row->exec;
    op->lane = op->row->lane;
    op->op_sel_hi = strchr(op->row->sig, 'x') ? 0 : 7; // the values that LLVM leaves out
    bool free_text = strcmp(op->row->sig, "*") == 0;   // s_delay_alu and the like: the encoding has it all
    if (!free_text && !split(text + n, &p)) return false;
    bool ok = true;
    for (u32 i = 0; ok && i < p.modifiers; i++) ok = parse_modifier(m, op, p.modifier[i], &p);
    if (ok && !free_text) ok = fill_operands(m, op, &p) && check_widths(op);
    if (!ok) {
        op->row = NULL;
        return false;
    }
    if (op->row->flags & ROW_READS_VCC) op->sread[1] |= 1ull << (SGPR_VCC - 64);
    if (op->row->flags & ROW_WRITES_VCC) op->swrite[1] |= 1ull << (SGPR_VCC - 64);
    op->plain = is_plain(op);
    return true;
}

static bool reads_vgpr(const gs_op *op, u32 reg) {
    for (u32 i = 0; i < op->vread_count; i++)
        if (reg >= op->vread[i].reg && reg < (u32)op->vread[i].reg + op->vread[i].count) return true;
    return false;
}

bool gs_parse_op(gs_module *m, gs_op *op, const char *text) {
    const char *both = strstr(text, " :: ");
    if (!both) return parse_single(m, op, text);
    char first[256];
    gs_op *pair = gs_arena_alloc(&m->arena, sizeof *pair, 64);
    if (!pair || (size_t)(both - text) >= sizeof first) return false;
    memcpy(first, text, (size_t)(both - text));
    first[both - text] = 0;
    if (!parse_single(m, pair, both + 4) || !parse_single(m, op, first)) {
        op->row = NULL;
        return false;
    }
    // Both halves read before either writes; in sequence only when the second does not read the first's result.
    op->bound = reads_vgpr(pair, op->dst.reg);
    op->pair = pair;
    for (int i = 0; i < 2; i++) op->sread[i] |= pair->sread[i], op->swrite[i] |= pair->swrite[i];
    return true;
}
