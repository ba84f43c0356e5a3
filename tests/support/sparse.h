// SPDX-License-Identifier: Apache-2.0
// Grids under the thread sanitizer: ten times slower, and a race does not hide between sizes, so every fifth case is enough.
#ifndef RD_TEST_SPARSE_H
#define RD_TEST_SPARSE_H

#if defined(__SANITIZE_THREAD__)
#define SPARSE_SKIPS(case_number_) ((case_number_) % 5 != 0)
#else
#define SPARSE_SKIPS(case_number_) ((void)(case_number_), 0)
#endif

#endif // RD_TEST_SPARSE_H
