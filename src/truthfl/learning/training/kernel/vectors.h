/* Vectors of floats, by the compilers' portable types: as wide as the registers of the instruction set. */
#ifndef LANES
#define LANES 4 /* floats in a register */
#endif
#define LINE 16 /* floats in a cache line */
#define INLINE static inline __attribute__((always_inline))

typedef float vc __attribute__((vector_size(4 * LANES), aligned(4)));   /* a register of floats */
typedef float vh __attribute__((vector_size(2 * LANES), aligned(4)));   /* half of one */
typedef int32_t ic __attribute__((vector_size(4 * LANES), aligned(4))); /* a register of integers */
typedef int32_t ih __attribute__((vector_size(2 * LANES), aligned(4)));
#define PARTS (16 / LANES) /* registers for sixteen classes */

#if LANES == 16
#define EVEN(a) __builtin_shufflevector(a, a, 0, 2, 4, 6, 8, 10, 12, 14)
#define ODD(a) __builtin_shufflevector(a, a, 1, 3, 5, 7, 9, 11, 13, 15)
#define COUNTED {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
#elif LANES == 8
#define EVEN(a) __builtin_shufflevector(a, a, 0, 2, 4, 6)
#define ODD(a) __builtin_shufflevector(a, a, 1, 3, 5, 7)
#define COUNTED {0, 1, 2, 3, 4, 5, 6, 7}
#else
#define EVEN(a) __builtin_shufflevector(a, a, 0, 2)
#define ODD(a) __builtin_shufflevector(a, a, 1, 3)
#define COUNTED {0, 1, 2, 3}
#endif

INLINE vc filled(float value) { return value - (vc){0}; } /* x − 0 is x, which compilers know; x + 0 is not, if x is −0 */
#if LANES == 16
INLINE vh lower_half(vc a) { return __builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7); }
#endif

/* Sum of a register's numbers: halves are added until one number is left. */
INLINE float sum_of(vc a) {
  float t[LANES];
  *(vc *)t = a;
  for (int half = LANES / 2; half; half /= 2)
    for (int j = 0; j < half; j++) t[j] += t[j + half];
  return t[0];
}
