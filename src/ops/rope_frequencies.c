// SPDX-License-Identifier: Apache-2.0
// The inverse frequencies of rotary embedding, theta^(-2i/rotary_dim), and the published ways to stretch them. Linear:
// "Extending context window of large language models via positional interpolation" (arXiv 2306.15595). An unknown type
// is refused by name: a wrong table still generates text, only worse.
#include "base/base.h"

#include <math.h>
#include <string.h>

// Llama 3.1's rule: wavelengths below original_context / high_freq_factor stay, above original_context / low_freq_factor
// are stretched by `factor`, in between the two are blended linearly in original_context / wavelength.
static double llama3_frequency(const rd_rope_scaling *s, double frequency) {
    double turns = s->original_context * frequency / (2 * 3.14159265358979323846);
    if (turns > s->high_freq_factor) return frequency;
    if (turns < s->low_freq_factor) return frequency / s->factor;
    double smooth = (turns - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return (1 - smooth) * frequency / s->factor + smooth * frequency;
}

static rd_status check_positive(const char *field, double value) {
    if (value > 0 && isfinite(value)) return RD_OK;
    return rdi_fail(RD_E_INVALID, "rope frequencies: %s=%g, needs a finite number > 0", field, value);
}

static rd_status check_scaling(const rd_rope_scaling *s, bool linear, bool llama3) {
    RDI_TRY(check_positive("theta", s->theta));
    if (linear || llama3) RDI_TRY(check_positive("factor", s->factor));
    if (!llama3) return RD_OK;
    RDI_TRY(check_positive("low_freq_factor", s->low_freq_factor));
    RDI_TRY(check_positive("high_freq_factor", s->high_freq_factor));
    RDI_TRY(check_positive("original_context", s->original_context));
    if (s->high_freq_factor <= s->low_freq_factor)
        return rdi_fail(RD_E_INVALID, "rope frequencies: high_freq_factor=%g, needs > low_freq_factor=%g",
                        s->high_freq_factor, s->low_freq_factor);
    return RD_OK;
}

rd_status rd_rope_frequencies(const rd_rope_scaling *scaling, int32_t rotary_dim, float *inv_freq) {
    if (!scaling || !inv_freq)
        return rdi_fail(RD_E_INVALID, "rope frequencies: %s=NULL, needs a pointer",
                        scaling ? "inv_freq" : "scaling");
    if (rotary_dim < 2 || rotary_dim % 2)
        return rdi_fail(RD_E_INVALID, "rope frequencies: rotary_dim=%d, needs an even number >= 2",
                        rotary_dim);
    const char *type = scaling->type ? scaling->type : "none";
    bool linear = strcmp(type, "linear") == 0, llama3 = strcmp(type, "llama3") == 0;
    if (!linear && !llama3 && strcmp(type, "none") != 0)
        return rdi_fail(RD_E_UNSUPPORTED, "rope frequencies: type=%.40s, needs one of: none linear llama3",
                        type);
    RDI_TRY(check_scaling(scaling, linear, llama3));
    for (int32_t i = 0; i < rotary_dim / 2; i++) {
        double frequency = pow(scaling->theta, -2.0 * i / rotary_dim);
        if (linear) frequency /= scaling->factor;
        if (llama3) frequency = llama3_frequency(scaling, frequency);
        inv_freq[i] = (float)frequency;
    }
    return RD_OK;
}
