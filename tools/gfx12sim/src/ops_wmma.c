// SPDX-License-Identifier: Apache-2.0
// Matrix instructions. Lane maps (measured on gfx1201 cards by others, see docs): C and D: lane l, element j is
// row 8*(l>>4)+j, column l&15. A and B: index l&15, k = 8*(e>>2) + 4*(l>>4) + (e&3) for element e.
//
// Stated sum order, which the silicon does not publish: D = C, then one float fused multiply-add per k in
// ascending k of the map above, rounded to nearest even, subnormals kept. 16-bit results are rounded once, at the
// end. Sparse forms do the same over the kept elements, ascending in the dense k = 16*(d>>3) + 8*(l>>4) + (d&7).
// Integer forms are exact, then wrapped or saturated.
#include "isa.h"
#include "fp8.h"

enum { N = 16, K_DENSE = 16, K_MAX = 64 };
typedef float tile_t[K_MAX][N] __attribute__((aligned(64))); // [k][row of A or column of B]

typedef enum form { F16, BF16, FP8, BF8, IU8, IU4 } form;
enum { OUT_F32, OUT_F16, OUT_BF16, OUT_I32 };
#define ARG(a, b, out, k, sparse) ((a) | (b) << 4 | (out) << 8 | (k) << 12 | (sparse) << 20)

static float fp8_table[2][256]; // e4m3, e5m2
static void make_tables(void) {
    for (u32 i = 0; i < 256; i++) fp8_table[0][i] = gs_fp8_to_f32(i), fp8_table[1][i] = gs_bf8_to_f32(i);
}

// Element e of half h lies at k: dense map, or the dense positions of a sparse operand's partner.
static inline u32 k_dense(u32 e, u32 h) {
    return 8 * (e >> 2) + 4 * h + (e & 3);
}
static inline u32 k_wide(u32 e, u32 h) {
    return 16 * (e >> 3) + 8 * h + (e & 7);
}

#ifdef __AVX512BW__
static u16 fp8_words[2][128]; // e4m3 and e5m2 magnitudes as bf16, which holds both exactly
static void make_words(void) {
    make_tables();
    for (u32 t = 0; t < 2; t++)
        for (u32 i = 0; i < 128; i++) fp8_words[t][i] = (u16)(gs_bits(fp8_table[t][i]) >> 16);
}
// 32 bytes, one in the low half of each 16-bit word, to bf16 words.
static inline __m512i words_to_bf16(__m512i bytes, const u16 *table) {
    __m512i low = _mm512_permutex2var_epi16(_mm512_loadu_si512(table), bytes, _mm512_loadu_si512(table + 32));
    __m512i high =
        _mm512_permutex2var_epi16(_mm512_loadu_si512(table + 64), bytes, _mm512_loadu_si512(table + 96));
    __m512i value =
        _mm512_mask_blend_epi16(_mm512_test_epi16_mask(bytes, _mm512_set1_epi16(0x40)), low, high);
    __m512i sign = _mm512_and_si512(_mm512_slli_epi16(bytes, 8), _mm512_set1_epi16((short)0x8000));
    return _mm512_or_si512(value, sign);
}
static void load_f8_fast(float (*t)[N], const u32 *v, u32 registers, bool wide, form f) {
    const u16 *table = fp8_words[f == BF8];
    for (u32 r = 0; r < registers; r++)
        for (u32 h = 0; h < 2; h++) {
            __m512i x = _mm512_loadu_si512(v + r * GS_LANES + 16 * h),
                    keep = _mm512_set1_epi32((int)0xffff0000);
            __m512i even = words_to_bf16(_mm512_and_si512(x, _mm512_set1_epi16(0xff)), table);
            __m512i odd = words_to_bf16(_mm512_srli_epi16(x, 8), table);
            float *k0 = t[wide ? k_wide(4 * r, h) : k_dense(4 * r, h)];
            _mm512_store_si512(k0, _mm512_slli_epi32(even, 16));
            _mm512_store_si512(k0 + N, _mm512_slli_epi32(odd, 16));
            _mm512_store_si512(k0 + 2 * N, _mm512_and_si512(even, keep));
            _mm512_store_si512(k0 + 3 * N, _mm512_and_si512(odd, keep));
        }
}
static void load_half_fast(tile_t t, const u32 *v, u32 registers, bool wide, form f) {
    for (u32 r = 0; r < registers; r++)
        for (u32 h = 0; h < 2; h++) {
            __m512i x = _mm512_loadu_si512(v + r * GS_LANES + 16 * h), high = _mm512_srli_epi32(x, 16);
            float *k0 = t[wide ? k_wide(2 * r, h) : k_dense(2 * r, h)];
            if (f == F16) {
                _mm512_store_ps(k0, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)));
                _mm512_store_ps(k0 + N, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(high)));
            } else {
                _mm512_store_si512(k0, _mm512_slli_epi32(x, 16));
                _mm512_store_si512(k0 + N, _mm512_slli_epi32(high, 16));
            }
        }
}

// The tile of an fp8 or bf8 operand of a dense instruction, from the cache when its 64 words are the same as before.
static const float (*cached_f8(struct gs_wmma_cache *c, const u32 *v, form f))[N] {
    __mmask16 differs = c->form != 1 + f;
    for (u32 i = 0; i < 2 * GS_LANES; i += 16)
        differs |= _mm512_cmpneq_epi32_mask(_mm512_loadu_si512(v + i), _mm512_loadu_si512(c->raw + i));
    if (differs) {
        memcpy(c->raw, v, sizeof c->raw);
        c->form = 1 + (u32)f;
        load_f8_fast(c->tile, v, 2, false, f);
    }
    return (const float(*)[N])c->tile;
}

// D = A * B + C in float without modifiers: the sums never leave the registers.
static void multiply_add_f32(u32 *d, const float (*a)[N], const float (*b)[N], const u32 *c) {
    __m512 s[N];
    for (int r = 0; r < N; r++) s[r] = _mm512_loadu_ps((const f32a *)c + (r & 7) * GS_LANES + 16 * (r >> 3));
    for (int k = 0; k < K_DENSE; k++) {
        __m512 row = _mm512_load_ps(b[k]);
#pragma GCC unroll 16
        for (int r = 0; r < N; r++) s[r] = _mm512_fmadd_ps(_mm512_set1_ps(a[k][r]), row, s[r]);
    }
    for (int r = 0; r < N; r++) _mm512_storeu_ps((f32a *)d + (r & 7) * GS_LANES + 16 * (r >> 3), s[r]);
}

static bool quick_wmma(gs_wave *w, const gs_op *op, form fa, form fb) {
    if (w->moded || op->src[2].kind != OPND_VGPR || op->neg_lo || op->neg_hi) return false;
    const u32 *va = gs_vgpr(w, op->src[0].reg), *vb = gs_vgpr(w, op->src[1].reg);
    tile_t ta, tb;
    const float(*a)[N] = (const float(*)[N])ta, (*b)[N] = (const float(*)[N])tb;
    if (fa >= FP8) {
        a = cached_f8(&w->g->wmma[0], va, fa);
        b = cached_f8(&w->g->wmma[1], vb, fb);
    } else {
        load_half_fast(ta, va, 4, false, fa);
        load_half_fast(tb, vb, 4, false, fb);
    }
    multiply_add_f32(gs_vgpr(w, op->dst.reg), a, b, gs_vgpr(w, op->src[2].reg));
    return true;
}
#else
static void make_words(void) {
    make_tables();
}
static bool quick_wmma(gs_wave *w, const gs_op *op, form fa, form fb) {
    (void)w, (void)op, (void)fa, (void)fb;
    return false;
}
#endif

// Widens a fragment to float. registers: 32-bit registers a lane holds.
static void load_tile(tile_t t, const u32 *v, u32 registers, bool wide, form f) {
#ifdef __AVX512BW__
    if (f == FP8 || f == BF8) {
        load_f8_fast(t, v, registers, wide, f);
        return;
    }
    load_half_fast(t, v, registers, wide, f);
    return;
#endif
    u32 per = f == F16 || f == BF16 ? 2 : 4;
    for (u32 r = 0; r < registers; r++)
        for (u32 s = 0; s < per; s++)
            for (u32 h = 0; h < 2; h++) {
                u32 e = per * r + s;
                float *row = t[wide ? k_wide(e, h) : k_dense(e, h)];
                const u32 *in = v + r * GS_LANES + 16 * h;
                if (f == F16) {
                    u32 half[N];
                    for (int i = 0; i < N; i++) half[i] = in[i] >> 16 * s & 0xffff;
                    for (int i = 0; i < N; i += 8) {
                        __m256i x = _mm256_loadu_si256((const __m256i *)(half + i));
                        __m128i y =
                            _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
                        _mm256_storeu_ps(row + i, _mm256_cvtph_ps(y));
                    }
                } else if (f == BF16)
                    for (int i = 0; i < N; i++) row[i] = gs_f32(in[i] >> 16 * s << 16);
                else
                    for (int i = 0; i < N; i++) row[i] = fp8_table[f == BF8][in[i] >> 8 * s & 0xff];
            }
}

// acc[row][column] += A[k][row] * B[k][column], k ascending.
static void multiply(float acc[N][N], const tile_t a, const tile_t b) {
#ifdef __AVX512F__
    __m512 s[N];
    for (int r = 0; r < N; r++) s[r] = _mm512_loadu_ps(acc[r]);
    for (int k = 0; k < K_DENSE; k++) {
        __m512 row = _mm512_load_ps(b[k]);
#pragma GCC unroll 16
        for (int r = 0; r < N; r++) s[r] = _mm512_fmadd_ps(_mm512_set1_ps(a[k][r]), row, s[r]);
    }
    for (int r = 0; r < N; r++) _mm512_storeu_ps(acc[r], s[r]);
#else
    for (int r0 = 0; r0 < N; r0 += 4) {
        __m256 s[4][2];
        for (int r = 0; r < 4; r++)
            s[r][0] = _mm256_loadu_ps(acc[r0 + r]), s[r][1] = _mm256_loadu_ps(acc[r0 + r] + 8);
        for (int k = 0; k < K_DENSE; k++) {
            __m256 lo = _mm256_load_ps(b[k]), hi = _mm256_load_ps(b[k] + 8);
            for (int r = 0; r < 4; r++) {
                __m256 x = _mm256_set1_ps(a[k][r0 + r]);
                s[r][0] = _mm256_fmadd_ps(x, lo, s[r][0]);
                s[r][1] = _mm256_fmadd_ps(x, hi, s[r][1]);
            }
        }
        for (int r = 0; r < 4; r++)
            _mm256_storeu_ps(acc[r0 + r], s[r][0]), _mm256_storeu_ps(acc[r0 + r] + 8, s[r][1]);
    }
#endif
}

// Sparse A: kept element e of lane half h stands for one of four dense neighbours; two index bits say which.
static u32 sparse_position(const u32 *index, const gs_op *op, u32 row, u32 h, u32 e) {
    u32 bits = index[row + 16 * h] >> (op->index_key ? 16 : 0);
    return 4 * (e >> 1) + (bits >> 2 * e & 3);
}
static void multiply_sparse(float acc[N][N], const tile_t a, const tile_t b, const u32 *index,
                            const gs_op *op) {
    for (u32 r = 0; r < N; r++)
        for (u32 part = 0; part < 2; part++) // dense 0..15, then 16..31
            for (u32 h = 0; h < 2; h++)
                for (u32 e = 4 * part; e < 4 * part + 4; e++) {
                    float x = a[k_dense(e, h)][r];
                    const float *y = b[k_wide(sparse_position(index, op, r, h, e), h)];
                    for (int col = 0; col < N; col++) acc[r][col] = fmaf(x, y[col], acc[r][col]);
                }
}

static inline u32 to_bf16(float x) {
    u32 bits = gs_bits(x);
    return x != x ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// C: neg_lo bit 2 negates, neg_hi bit 2 takes the magnitude.
static void load_accumulator(gs_wave *w, const gs_op *op, float acc[N][N], u32 out) {
    const gs_opnd *o = &op->src[2];
    u32 tmp[2 * GS_LANES];
    bool vector = o->kind == OPND_VGPR;
    const u32 *v = gs_fetch(w, o, tmp);
    for (u32 j = 0; j < 8; j++)
        for (u32 h = 0; h < 2; h++) {
            const u32 *in = v + 16 * h + (vector ? (out == OUT_F32 ? j : j >> 1) * GS_LANES : 0);
            float *row = acc[8 * h + j];
            // An inline constant was parsed as a float; small integers are bit patterns of the element.
            if (out == OUT_F32 || (!vector && in[0] > 0xffff))
                memcpy(row, in, N * sizeof *row);
            else
                for (u32 col = 0; col < N; col++) {
                    u32 half = in[col] >> (vector ? 16 * (j & 1) : 0) & 0xffff;
                    row[col] = out == OUT_F16 ? gs_f16_to_f32_scalar(half) : gs_f32(half << 16);
                }
        }
    if (op->neg_hi & 4)
        for (u32 i = 0; i < N * N; i++) acc[i / N][i % N] = fabsf(acc[i / N][i % N]);
    if (op->neg_lo & 4)
        for (u32 i = 0; i < N * N; i++) acc[i / N][i % N] = -acc[i / N][i % N];
}

static void store_result(u32 *d, float acc[N][N], u32 out) {
    if (out == OUT_F32) {
        for (u32 j = 0; j < 8; j++)
            for (u32 h = 0; h < 2; h++) memcpy(d + j * GS_LANES + 16 * h, acc[8 * h + j], sizeof acc[0]);
        return;
    }
    for (u32 j = 0; j < 8; j++)
        for (u32 lane = 0; lane < GS_LANES; lane++) {
            float x = acc[8 * (lane >> 4) + j][lane & 15];
            u32 half = out == OUT_F16 ? gs_f32_to_f16_scalar(x) : to_bf16(x), shift = 16 * (j & 1);
            u32 *at = d + (j >> 1) * GS_LANES + lane;
            *at = (*at & ~(0xffffu << shift)) | half << shift;
        }
}

// f16 and bf16 A and B: neg_lo negates even elements, neg_hi odd ones.
static const u32 *negate(const gs_op *op, u32 k, const u32 *v, u32 registers, u32 *tmp) {
    u32 flip = (op->neg_lo >> k & 1 ? 0x8000u : 0) | (op->neg_hi >> k & 1 ? 0x80000000u : 0);
    if (!flip) return v;
    for (u32 i = 0; i < registers * GS_LANES; i++) tmp[i] = v[i] ^ flip;
    return tmp;
}

static gs_stop float_wmma(gs_wave *w, const gs_op *op) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_words);
    u32 arg = op->row->arg, out = arg >> 8 & 15;
    form fa = (form)(arg & 15), fb = (form)(arg >> 4 & 15);
    bool sparse = arg >> 20 & 1;
    if (out == OUT_F32 && !sparse && quick_wmma(w, op, fa, fb)) return GS_RUN;
    tile_t a, b;
    float acc[N][N] __attribute__((aligned(64)));
    u32 flipped[2][8 * GS_LANES];
    u32 ra = op->src[0].dwords, rb = op->src[1].dwords, csr = 0;
    if (w->moded) // the host's control register is slow to read and to write
        csr = _mm_getcsr(), _mm_setcsr(0x1f80);
    load_tile(a, negate(op, 0, gs_vgpr(w, op->src[0].reg), ra, flipped[0]), ra, false, fa);
    load_tile(b, negate(op, 1, gs_vgpr(w, op->src[1].reg), rb, flipped[1]), rb, sparse, fb);
    if (sparse) { // D is C as well
        gs_op tied = *op;
        tied.src[2] = op->dst;
        tied.neg_lo = tied.neg_hi = 0;
        load_accumulator(w, &tied, acc, out);
        multiply_sparse(acc, a, b, gs_vgpr(w, op->src[2].reg), op);
    } else {
        load_accumulator(w, op, acc, out);
        multiply(acc, a, b);
    }
    store_result(gs_vgpr(w, op->dst.reg), acc, out);
    if (w->moded) _mm_setcsr(csr);
    return GS_RUN;
}

// Integer fragments: elements of 8 or 4 bits, signed where neg_lo says so.
static i32 int_element(u32 word, u32 at, u32 bits, bool is_signed) {
    u32 v = word << (32 - bits - at * bits);
    return is_signed ? (i32)v >> (32 - bits) : (i32)(v >> (32 - bits));
}
static gs_stop int_wmma(gs_wave *w, const gs_op *op) {
    u32 bits = (op->row->arg & 15) == IU8 ? 8 : 4, per = 32 / bits;
    bool sparse = op->row->arg >> 20 & 1, sa = op->neg_lo & 1, sb = op->neg_lo & 2;
    u32 na = op->src[0].dwords * per, tmp[2 * GS_LANES], out[8 * GS_LANES];
    const u32 *a = gs_vgpr(w, op->src[0].reg), *b = gs_vgpr(w, op->src[1].reg);
    const gs_opnd *o = sparse ? &op->dst : &op->src[2];
    const u32 *c = gs_fetch(w, o, tmp), *index = sparse ? gs_vgpr(w, op->src[2].reg) : NULL;
    for (u32 row = 0; row < N; row++)
        for (u32 col = 0; col < N; col++) {
            i64 sum = 0;
            for (u32 h = 0; h < 2; h++)
                for (u32 e = 0; e < na; e++) {
                    u32 f = sparse ? sparse_position(index, op, row, h, e) : e;
                    sum += (i64)int_element(a[e / per * GS_LANES + row + 16 * h], e % per, bits, sa) *
                           int_element(b[f / per * GS_LANES + col + 16 * h], f % per, bits, sb);
                }
            u32 j = row & 7, lane = col + 16 * (row >> 3);
            sum += (i32)c[(o->kind == OPND_VGPR ? j : 0) * GS_LANES + lane];
            if (op->clamp) sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
            out[j * GS_LANES + lane] = (u32)sum;
        }
    memcpy(gs_vgpr(w, op->dst.reg), out, sizeof out);
    return GS_RUN;
}

#define W(name, fn, arg)                                                                                     \
    { name, "r=rrr", fn, NULL, NULL, GS_CLASS_WMMA, 0, ROW_VALU | ROW_EXEC_FULL, arg }
#define S(name, fn, arg)                                                                                     \
    { name, "r=rrr+", fn, NULL, NULL, GS_CLASS_WMMA, 0, ROW_VALU | ROW_EXEC_FULL, arg }
const gs_row GS_SYM(gs_rows_wmma)[] = {
    W("v_wmma_f32_16x16x16_f16", float_wmma, ARG(F16, F16, OUT_F32, 16, 0)),
    W("v_wmma_f32_16x16x16_bf16", float_wmma, ARG(BF16, BF16, OUT_F32, 16, 0)),
    W("v_wmma_f16_16x16x16_f16", float_wmma, ARG(F16, F16, OUT_F16, 16, 0)),
    W("v_wmma_bf16_16x16x16_bf16", float_wmma, ARG(BF16, BF16, OUT_BF16, 16, 0)),
    W("v_wmma_f32_16x16x16_fp8_fp8", float_wmma, ARG(FP8, FP8, OUT_F32, 16, 0)),
    W("v_wmma_f32_16x16x16_fp8_bf8", float_wmma, ARG(FP8, BF8, OUT_F32, 16, 0)),
    W("v_wmma_f32_16x16x16_bf8_fp8", float_wmma, ARG(BF8, FP8, OUT_F32, 16, 0)),
    W("v_wmma_f32_16x16x16_bf8_bf8", float_wmma, ARG(BF8, BF8, OUT_F32, 16, 0)),
    W("v_wmma_i32_16x16x16_iu8", int_wmma, ARG(IU8, IU8, OUT_I32, 16, 0)),
    W("v_wmma_i32_16x16x16_iu4", int_wmma, ARG(IU4, IU4, OUT_I32, 16, 0)),
    W("v_wmma_i32_16x16x32_iu4", int_wmma, ARG(IU4, IU4, OUT_I32, 32, 0)),
    S("v_swmmac_f32_16x16x32_f16", float_wmma, ARG(F16, F16, OUT_F32, 32, 1)),
    S("v_swmmac_f32_16x16x32_bf16", float_wmma, ARG(BF16, BF16, OUT_F32, 32, 1)),
    S("v_swmmac_f16_16x16x32_f16", float_wmma, ARG(F16, F16, OUT_F16, 32, 1)),
    S("v_swmmac_bf16_16x16x32_bf16", float_wmma, ARG(BF16, BF16, OUT_BF16, 32, 1)),
    S("v_swmmac_f32_16x16x32_fp8_fp8", float_wmma, ARG(FP8, FP8, OUT_F32, 32, 1)),
    S("v_swmmac_f32_16x16x32_fp8_bf8", float_wmma, ARG(FP8, BF8, OUT_F32, 32, 1)),
    S("v_swmmac_f32_16x16x32_bf8_fp8", float_wmma, ARG(BF8, FP8, OUT_F32, 32, 1)),
    S("v_swmmac_f32_16x16x32_bf8_bf8", float_wmma, ARG(BF8, BF8, OUT_F32, 32, 1)),
    S("v_swmmac_i32_16x16x32_iu8", int_wmma, ARG(IU8, IU8, OUT_I32, 32, 1)),
    S("v_swmmac_i32_16x16x32_iu4", int_wmma, ARG(IU4, IU4, OUT_I32, 32, 1)),
    S("v_swmmac_i32_16x16x64_iu4", int_wmma, ARG(IU4, IU4, OUT_I32, 64, 1)),
    {0}};
