// SPDX-License-Identifier: Apache-2.0
// Reference of rope_kv_write: rope of q and k in place, then kv_write of k and v, by their references.
#include "kernels/elementwise/args.h"
#include "kernels/rows.h"

void rdk_rope_kv_write_cpu_ref(const void *args, void *ws, rdi_par *par) {
    const rdi_rope_kv_write_args *a = args;
    rdk_rope_cpu_ref(&a->rope, ws, par);
    rdk_kv_write_cpu_ref(&a->kv, ws, par);
}
