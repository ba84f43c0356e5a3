// SPDX-License-Identifier: Apache-2.0
// A MessagePack reader for kernel metadata: a cursor over bytes that nobody has vouched for. Lengths are
// compared with what is left before anything is read, and nesting is bounded.
#include "codeobj.h"

enum { MAX_DEPTH = 32 };

static bool take(gs_msgpack *m, u64 bytes, const u8 **at) {
    if ((u64)(m->end - m->at) < bytes) return false;
    *at = m->at;
    m->at += bytes;
    return true;
}

static bool big_endian(gs_msgpack *m, u32 bytes, u64 *value) {
    const u8 *p;
    if (!take(m, bytes, &p)) return false;
    *value = 0;
    for (u32 i = 0; i < bytes; i++) *value = *value << 8 | p[i];
    return true;
}

// Counted containers share one shape: a fix form in the tag's low bits, or a 16- or 32-bit count behind it.
static bool counted(gs_msgpack *m, u8 fix, u8 fix_mask, u8 tag16, u32 *count) {
    if (m->at == m->end) return false;
    u8 tag = *m->at;
    u64 n;
    gs_msgpack c = {m->at + 1, m->end};
    if ((tag & fix_mask) == fix) n = tag & (u8)~fix_mask;
    else if (tag == tag16) { if (!big_endian(&c, 2, &n)) return false; }
    else if (tag == tag16 + 1) { if (!big_endian(&c, 4, &n)) return false; }
    else return false;
    *count = (u32)n;
    *m = c;
    return true;
}

bool gs_msgpack_map(gs_msgpack *m, u32 *count) { return counted(m, 0x80, 0xf0, 0xde, count); }
bool gs_msgpack_array(gs_msgpack *m, u32 *count) { return counted(m, 0x90, 0xf0, 0xdc, count); }

bool gs_msgpack_text(gs_msgpack *m, const char **text, u32 *bytes) {
    if (m->at == m->end) return false;
    gs_msgpack c = {m->at + 1, m->end};
    u8 tag = *m->at;
    u64 n;
    if ((tag & 0xe0) == 0xa0) n = tag & 0x1f;
    else if (tag >= 0xd9 && tag <= 0xdb) { if (!big_endian(&c, 1u << (tag - 0xd9), &n)) return false; }
    else return false;
    const u8 *p;
    if (!take(&c, n, &p)) return false;
    *text = (const char *)p;
    *bytes = (u32)n;
    *m = c;
    return true;
}

bool gs_msgpack_uint(gs_msgpack *m, u64 *value) {
    if (m->at == m->end) return false;
    gs_msgpack c = {m->at + 1, m->end};
    u8 tag = *m->at;
    if (tag < 0x80) *value = tag;
    else if (tag >= 0xcc && tag <= 0xcf) { if (!big_endian(&c, 1u << (tag - 0xcc), value)) return false; }
    else if (tag >= 0xd0 && tag <= 0xd3) { // signed; metadata has no negative numbers
        u32 bytes = 1u << (tag - 0xd0);
        if (!big_endian(&c, bytes, value) || *value >> (8 * bytes - 1)) return false;
    } else return false;
    *m = c;
    return true;
}

bool gs_msgpack_bool(gs_msgpack *m, bool *value) {
    if (m->at == m->end || (*m->at & 0xfe) != 0xc2) return false;
    *value = *m->at++ & 1;
    return true;
}

static bool skip(gs_msgpack *m, u32 depth) {
    u32 count, bytes;
    const char *text;
    const u8 *p;
    if (depth == MAX_DEPTH || m->at == m->end) return false;
    bool map = gs_msgpack_map(m, &count);
    if (map || gs_msgpack_array(m, &count)) {
        for (u64 i = 0; i < (map ? 2 * (u64)count : count); i++)
            if (!skip(m, depth + 1)) return false;
        return true;
    }
    if (gs_msgpack_text(m, &text, &bytes)) return true;
    u8 tag = *m->at++;
    if (tag < 0x80 || tag >= 0xe0 || tag == 0xc0 || (tag & 0xfe) == 0xc2) return true;
    if (tag >= 0xc4 && tag <= 0xc6) { // binary
        u64 n;
        return big_endian(m, 1u << (tag - 0xc4), &n) && take(m, n, &p);
    }
    if (tag == 0xca || tag == 0xcb) return take(m, tag == 0xca ? 4 : 8, &p);
    if (tag >= 0xcc && tag <= 0xd3) return take(m, 1u << ((tag - 0xcc) & 3), &p);
    return false;
}

bool gs_msgpack_skip(gs_msgpack *m) { return skip(m, 0); }
