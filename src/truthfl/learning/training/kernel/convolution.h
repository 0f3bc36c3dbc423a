/* The CNN: 5 × 5 filters, ReLU and 2 × 2 max-pooling in one pass, then the dense layer. */
#define ROW_LANES (LANES < 8 ? LANES : 8)
#define ROW_PARTS (8 / ROW_LANES) /* registers for a row of a filter */
typedef float vr __attribute__((vector_size(4 * ROW_LANES), aligned(4)));

#if LANES == 16
#define FILTERS 4 /* computed at once, so that the sums stay in registers */
#define WIDEST 2
#else
#define FILTERS 2
#define WIDEST 3
#endif

/* Keeps the compiler from carrying a row of the filters over to the next row of pixels, for which it has no registers. */
#define HIDE(pointer) __asm__("" : "+r"(pointer))

/* Sums of two neighbouring rows of the convolution: `wide` registers of columns, then (LANES is 16) perhaps half a one. */
typedef struct {
  vc whole[2][FILTERS][WIDEST];
  vh half[2][FILTERS];
} sums_of_rows;

INLINE void add_taps(const int wide, const int half, float tap, const vc *t, vh rest, vc *whole, vh *halves) {
  vc taps = filled(tap);
  for (int n = 0; n < wide; n++) whole[n] += taps * t[n];
#if LANES == 16
  if (half) *halves += lower_half(taps) * rest;
#endif
}

/* Adds one row of pixels: to the upper row with row `filter` of the filters, to the lower with the row before it. */
INLINE void convolve_row(const int wide, const int half, const float *x, const float *const *filter, const int upper,
                         const int lower, sums_of_rows *a) {
#pragma GCC unroll 5
  for (int l = 0; l < K; l++) {
    vc t[WIDEST];
    vh rest = half ? *(const vh *)(x + l + wide * LANES) : (vh){0};
    for (int n = 0; n < wide; n++) t[n] = *(const vc *)(x + l + n * LANES);
    for (int q = 0; q < FILTERS; q++) {
      if (upper) add_taps(wide, half, filter[q][l], t, rest, a->whole[0][q], a->half[0] + q);
      if (lower) add_taps(wide, half, filter[q][l - K], t, rest, a->whole[1][q], a->half[1] + q);
    }
  }
}

/* Pools two neighbouring rows: the largest of each 2 × 2 and its position; in a tie the upper one, then the left. */
INLINE vh pool(vc upper, vc under, ic column, int32_t width, ih *at) {
  ic lower = under > upper;
  vc best = (vc)((lower & (ic)under) | (~lower & (ic)upper));
  ic from = column + (lower & width);
  vh left = EVEN(best), right = ODD(best);
  ih later = right > left, at_left = EVEN(from), at_right = ODD(from);
  *at = (later & at_right) | (~later & at_left);
  return (vh)((later & (ih)right) | (~later & (ih)left));
}

INLINE vh relu(vh z) { return (vh)((z > 0.0f) & (ih)z); }

/* `wide` registers of columns, perhaps half a one, of two neighbouring rows, FILTERS filters, pooled: value and origin.
   Filters are `f_step` apart, results `step`; only `real` filters and `here` results are written. */
INLINE void convolve_columns(const int wide, const int half, const float *x, const float *f, int64_t plane, int64_t width,
                             int64_t channels, int64_t f_step, const float *bias, int32_t origin, float *value,
                             int32_t *from, int64_t step, int64_t real, int64_t here) {
  sums_of_rows a;
  for (int q = 0; q < FILTERS; q++) {
    for (int n = 0; n < wide; n++) a.whole[0][q][n] = a.whole[1][q][n] = (vc){0};
    a.half[0][q] = a.half[1][q] = (vh){0};
  }
  for (int64_t c = 0; c < channels; c++) {
    const float *row = x + c * plane, *filter[FILTERS];
    for (int q = 0; q < FILTERS; q++) filter[q] = f + q * f_step + c * K * K;
    convolve_row(wide, half, row, filter, 1, 0, &a);
    for (int r = 1; r < K; r++) {
      row += width;
      for (int q = 0; q < FILTERS; q++) { filter[q] += K; HIDE(filter[q]); }
      convolve_row(wide, half, row, filter, 1, 1, &a);
    }
    for (int q = 0; q < FILTERS; q++) { filter[q] += K; HIDE(filter[q]); }
    convolve_row(wide, half, row + width, filter, 0, 1, &a);
  }
  const ic column = COUNTED;
  for (int q = 0; q < FILTERS; q++)
    for (int n = 0; n < wide; n++) {
      ih at;
      vh z = relu(pool(a.whole[0][q][n], a.whole[1][q][n], column + (origin + n * LANES), (int32_t)width, &at) + bias[q]);
      int64_t left_over = here - n * (LANES / 2), to = q * step + n * (LANES / 2);
      if (q >= real || left_over <= 0) continue;
      if (left_over >= LANES / 2) {
        memcpy(value + to, &z, sizeof z);
        memcpy(from + to, &at, sizeof at);
      } else {
        memcpy(value + to, &z, (size_t)left_over * sizeof(float));
        memcpy(from + to, &at, (size_t)left_over * sizeof(int32_t));
      }
    }
#if LANES == 16
  if (half) /* the halves of two filters share a register */
    for (int q = 0; q < FILTERS; q += 2) {
      const ic columns = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7};
#define JOINED(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
      vc upper = JOINED(a.half[0][q], a.half[0][q + 1]), under = JOINED(a.half[1][q], a.half[1][q + 1]);
#undef JOINED
      vh first = lower_half(filled(bias[q])), second = lower_half(filled(bias[q + 1]));
      vh biases = __builtin_shufflevector(first, second, 0, 1, 2, 3, 8, 9, 10, 11);
      ih at;
      vh z = relu(pool(upper, under, columns + (origin + wide * LANES), (int32_t)width, &at) + biases);
      int64_t left_over = here - wide * (LANES / 2), size = left_over < 4 ? left_over : 4;
      for (int k = 0; k < 2; k++) {
        int64_t to = (q + k) * step + wide * (LANES / 2);
        if (q + k >= real) continue;
        if (size == 4) {
          memcpy(value + to, (float *)&z + 4 * k, 4 * sizeof(float));
          memcpy(from + to, (int32_t *)&at + 4 * k, 4 * sizeof(int32_t));
        } else {
          memcpy(value + to, (float *)&z + 4 * k, (size_t)size * sizeof(float));
          memcpy(from + to, (int32_t *)&at + 4 * k, (size_t)size * sizeof(int32_t));
        }
      }
    }
#endif
}

static void convolve(const truthfl_job *job, const shape *s, const float *p, scratch *w, int m) {
  const float *x = w->x + m * w->x_step;
  int64_t per_filter = s->pooled_h * s->pooled_w, f_step = (int64_t)job->channels * K * K;
  for (int64_t f = 0; f < job->filters; f += FILTERS)
    for (int64_t row = 0; row < s->pooled_h; row++)
      for (int64_t column = 0; column < s->pooled_w; column += WIDEST * (LANES / 2)) {
        int32_t origin = (int32_t)(2 * row * job->width + 2 * column);
        int64_t unit = m * s->units16 + f * per_filter + row * s->pooled_w + column, here = s->pooled_w - column;
#define CONVOLVE(wide, half)                                                                                            \
  convolve_columns(wide, half, x + origin, p + f * f_step, s->plane, job->width, job->channels, f_step,                 \
                   p + s->biases + f, origin, w->act + unit, w->arg + unit, per_filter, job->filters - f, here)
#if LANES == 16
        if (here <= 4) CONVOLVE(0, 1);
        else if (here <= 8) CONVOLVE(1, 0);
        else if (here <= 12) CONVOLVE(1, 1);
        else CONVOLVE(2, 0);
#else
        if (here <= LANES / 2) CONVOLVE(1, 0);
        else if (here <= LANES) CONVOLVE(2, 0);
        else CONVOLVE(WIDEST, 0);
#endif
#undef CONVOLVE
      }
}

/* Adds the window at `from`, times q, to the sums of the rows of a filter; returns q. */
INLINE float add_window(vr rows[K][ROW_PARTS], const float *from, int64_t width, float q) {
  for (int k = 0; k < K; k++)
    for (int u = 0; u < ROW_PARTS; u++) rows[k][u] += q * *(const vr *)(from + k * width + u * ROW_LANES);
  return q;
}

/* Units of a filter that are above 0: where in the image their values come from, and the derivative by them. */
typedef struct {
  int32_t *at;
  float *by;
  int64_t number;
} active_units;

INLINE active_units find_active(const scratch *w, int64_t first, int64_t units, int64_t room) {
  active_units found = {w->active_at + room, w->active_by + room, 0};
  const float *act = w->act + first, *back = w->back + first;
  const int32_t *arg = w->arg + first;
#if LANES == 16
  for (int64_t i = 0; i < units; i += 16) { /* whole registers are written; what is too much is overwritten */
    __mmask16 real = units - i < 16 ? (__mmask16)((1 << (units - i)) - 1) : (__mmask16)0xFFFF;
    __mmask16 above = _mm512_mask_cmp_ps_mask(real, _mm512_loadu_ps(act + i), _mm512_setzero_ps(), _CMP_GT_OQ);
    _mm512_storeu_si512(found.at + found.number, _mm512_maskz_compress_epi32(above, _mm512_loadu_si512(arg + i)));
    _mm512_storeu_ps(found.by + found.number, _mm512_maskz_compress_ps(above, _mm512_loadu_ps(back + i)));
    found.number += __builtin_popcount(above);
  }
#else
  for (int64_t i = 0; i < units; i++) {
    found.at[found.number] = arg[i];
    found.by[found.number] = back[i];
    found.number += act[i] > 0.0f;
  }
#endif
  return found;
}

/* Adds the derivatives by the filters; two at a time, whose independent sums hide each other's latency. */
static void convolve_backward(const truthfl_job *job, const shape *s, const scratch *w, int m, float *g) {
  const float *x = w->x + m * w->x_step;
  int64_t per_filter = s->pooled_h * s->pooled_w, width = job->width;
  for (int64_t f = 0; f < job->filters; f += 2) {
    int filters = f + 1 < job->filters ? 2 : 1;
    active_units of[2];
    for (int q = 0; q < 2; q++)
      of[q] = find_active(w, m * s->units16 + (f + q) * per_filter, q < filters ? per_filter : 0, q * up(per_filter + 1, 16));
    const active_units a = of[0], b = of[1];
    int64_t both = a.number < b.number ? a.number : b.number;
    float bias[2] = {0.0f, 0.0f};
    for (int64_t c = 0; c < job->channels; c++) {
      const float *from = x + c * s->plane;
      vr rows[2][K][ROW_PARTS];
      for (int k = 0; k < K; k++)
        for (int u = 0; u < ROW_PARTS; u++) rows[0][k][u] = rows[1][k][u] = (vr){0};
      bias[0] = bias[1] = 0.0f; /* the same for each channel */
      for (int64_t n = 0; n < both; n++) {
        bias[0] += add_window(rows[0], from + a.at[n], width, a.by[n]);
        bias[1] += add_window(rows[1], from + b.at[n], width, b.by[n]);
      }
      for (int64_t n = both; n < a.number; n++) bias[0] += add_window(rows[0], from + a.at[n], width, a.by[n]);
      for (int64_t n = both; n < b.number; n++) bias[1] += add_window(rows[1], from + b.at[n], width, b.by[n]);
      for (int q = 0; q < filters; q++) {
        float *gf = g + ((f + q) * job->channels + c) * K * K;
        for (int k = 0; k < K; k++)
          for (int l = 0; l < K; l++) gf[k * K + l] += rows[q][k][l / ROW_LANES][l % ROW_LANES];
      }
    }
    for (int q = 0; q < filters; q++) g[s->biases + f + q] += bias[q];
  }
}

static void cnn_block(const truthfl_job *job, const shape *s, const float *p, scratch *w, int count, float *g) {
  for (int m = 0; m < count; m++) {
    to_floats(w->queue[m].image, s->pixels, w->x + m * w->x_step);
    convolve(job, s, p, w, m);
  }
  clear_rest(w->act, count, s->units16);
  dense_forward(s, p, w, count);
  finish_logits(w, s, count, g != NULL);
  if (!g) return;
  clear_rest(w->logits, count, s->classes16);
  dense_to_units(s, p, w);
  dense_to_weights(s, w, count, g);
  for (int m = 0; m < count; m++) convolve_backward(job, s, w, m, g);
}
