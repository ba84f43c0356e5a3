// SPDX-License-Identifier: Apache-2.0
// A model is opened here.
#include "radiance_run.h"
