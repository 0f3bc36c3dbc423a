/* The kernel for AVX-512; empty on other machines. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma,prefer-vector-width=512")
#endif
#define LANES 16
#define TARGET(name) truthfl_avx512_##name
#include "body.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
