/* The kernel for AVX2 and FMA; empty on other machines. */
#if defined(__x86_64__)
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define LANES 8
#define TARGET(name) truthfl_avx2_##name
#include "body.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
