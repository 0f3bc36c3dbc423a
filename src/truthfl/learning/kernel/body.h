/* The kernel itself, compiled once per instruction set: TARGET(name) adds the set's suffix to each exported name.

   Everything is written with the compilers' portable vector types, as wide as the instruction set's registers. Images go
   through in blocks of BLOCK, so that the weights are read once per block.

   Inner layout of the parameters (see `inner_size`, `pack`, `unpack`):
     softmax  weights [pixel][class, padded to 16], then biases [padded]
     CNN      filters [filter, padded to 4][channel][25], biases [padded], then dense [class][unit, padded to 16], then
              biases [class, padded to 16]
   Padding is 0 and stays 0. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "job.h"

#define BLOCK 8
#define LINE 16 /* floats in a cache line */
#define K 5 /* filters are 5 × 5 */
#ifndef LANES
#define LANES 4 /* floats in a register */
#endif

typedef float vc __attribute__((vector_size(4 * LANES), aligned(4)));   /* a register of floats */
typedef float vh __attribute__((vector_size(2 * LANES), aligned(4)));   /* half of one */
typedef int32_t ic __attribute__((vector_size(4 * LANES), aligned(4))); /* a register of integers */
typedef int32_t ih __attribute__((vector_size(2 * LANES), aligned(4)));
#define PARTS (16 / LANES) /* registers for sixteen classes */
#define ROW_LANES (LANES < 8 ? LANES : 8)
#define ROW_PARTS (8 / ROW_LANES) /* registers for a row of a filter */
typedef float vr __attribute__((vector_size(4 * ROW_LANES), aligned(4)));
#define INLINE static inline __attribute__((always_inline))

/* ---- draws: the same as learning/draws.py ---- */
enum { BATCH = 1, AVAILABILITY = 4 };
#define GOLDEN 0x9E3779B97F4A7C15ull

INLINE uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
INLINE uint64_t purpose_key(uint64_t seed, uint64_t purpose) { return mix(seed + GOLDEN * purpose); }
INLINE uint64_t with(uint64_t key, uint64_t counter) { return mix(key ^ (counter + GOLDEN)); }
INLINE uint64_t draw(uint64_t key, uint64_t position) { return mix(key + GOLDEN * (position + 1)); }

static int is_available(const truthfl_job *job, int64_t client, int64_t round) {
  if (job->available[client] >= 1.0) return 1;
  uint64_t key = with(with(purpose_key(job->seed, AVAILABILITY), (uint64_t)client), (uint64_t)round);
  return (double)(draw(key, 0) >> 11) * 0x1p-53 < job->available[client];
}

/* ---- sizes ---- */
INLINE int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
typedef struct {
  int64_t pixels, plane, classes, classes16, filters4, pooled_h, pooled_w, units, units16, biases, dense, dense_biases, total;
} shape;

INLINE shape shape_of(const truthfl_job *job) {
  shape s;
  memset(&s, 0, sizeof s);
  s.plane = (int64_t)job->height * job->width;
  s.pixels = s.plane * job->channels;
  s.classes = job->classes;
  s.classes16 = up(job->classes, 16);
  if (job->filters == 0) {
    s.dense_biases = s.pixels * s.classes16;
    s.total = s.dense_biases + s.classes16;
    return s;
  }
  s.filters4 = up(job->filters, 4);
  s.pooled_h = (job->height - K + 1) / 2;
  s.pooled_w = (job->width - K + 1) / 2;
  s.units = job->filters * s.pooled_h * s.pooled_w;
  s.units16 = up(s.units, 16);
  s.biases = s.filters4 * job->channels * K * K;
  s.dense = s.biases + s.filters4;
  s.dense_biases = s.dense + s.classes * s.units16;
  s.total = s.dense_biases + s.classes16;
  return s;
}

/* ---- scratch memory of one worker ---- */
typedef struct {
  float *x;        /* BLOCK images as floats, [channel][row][column], with room behind for loads past the end */
  int64_t x_step;
  float *act;      /* [image][unit, padded] after ReLU */
  int32_t *arg;    /* [image][unit]: position in the image that the pooled value comes from */
  float *back;     /* [image][unit, padded]: derivative of the loss by the unit */
  float *logits;   /* [image][class, padded] */
  int32_t *runs[BLOCK]; /* of each image, the runs of eight pixels that are not all dark */
  int64_t found[BLOCK]; /* their number */
  const uint8_t *image[BLOCK];
  int64_t row[BLOCK]; /* the number of the image in the job, or −1 */
  int32_t label[BLOCK];
  float weight[BLOCK];
  int count;
  double loss;
  int64_t correct;
  float pixel[256];
} scratch;

static void free_scratch(scratch *w) {
  if (!w) return;
  free(w->x); free(w->act); free(w->arg); free(w->back); free(w->logits); free(w->runs[0]); free(w);
}

static scratch *new_scratch(const truthfl_job *job, const shape *s) {
  scratch *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  for (int v = 0; v < 256; v++) w->pixel[v] = (float)v / 255.0f;
  w->logits = calloc((size_t)(BLOCK * s->classes16), sizeof(float));
  if (job->filters) {
    w->x_step = s->pixels + 64;
    w->x = calloc((size_t)(BLOCK * w->x_step), sizeof(float));
    w->act = calloc((size_t)(BLOCK * s->units16 + 64), sizeof(float));
    w->arg = calloc((size_t)(BLOCK * s->units16 + 64), sizeof(int32_t));
    w->back = calloc((size_t)(BLOCK * s->units16), sizeof(float));
    if (!w->x || !w->act || !w->arg || !w->back) { free_scratch(w); return NULL; }
  }
  w->runs[0] = calloc((size_t)(BLOCK * (s->pixels / 8 + 2)), sizeof(int32_t));
  if (!w->logits || !w->runs[0]) { free_scratch(w); return NULL; }
  for (int m = 1; m < BLOCK; m++) w->runs[m] = w->runs[m - 1] + s->pixels / 8 + 2;
  return w;
}

/* ---- softmax and cross-entropy: logits → weighted derivatives, in place ---- */
static void finish_logits(scratch *w, const shape *s, int gradient) {
  for (int m = 0; m < w->count; m++) {
    float *l = w->logits + m * s->classes16;
    int best = 0;
    for (int c = 1; c < s->classes; c++) if (l[c] > l[best]) best = c;
    float top = l[best], at_label = l[w->label[m]], sum = 0.0f;
    for (int c = 0; c < s->classes; c++) { l[c] = expf(l[c] - top); sum += l[c]; }
    if (!gradient) {
      w->loss += (double)w->weight[m] * ((double)top + log((double)sum) - (double)at_label);
      w->correct += best == w->label[m];
      continue;
    }
    float factor = w->weight[m] / sum;
    for (int c = 0; c < s->classes; c++) l[c] *= factor;
    l[w->label[m]] -= w->weight[m];
    for (int64_t c = s->classes; c < s->classes16; c++) l[c] = 0.0f;
  }
}

/* ---- softmax regression: runs of eight dark pixels are skipped ---- */
INLINE int is_dark(const uint8_t *image, int64_t from, int64_t pixels) {
  uint64_t eight = 0;
  if (from + 8 <= pixels) memcpy(&eight, image + from, 8);
  else memcpy(&eight, image + from, (size_t)(pixels - from));
  return eight == 0;
}

/* Adds a run of `end` pixels to the scores of sixteen classes; rows of weights are `stride` apart. */
INLINE void add_run(const float *pixel, const uint8_t *image, const float *weights, int64_t stride, int64_t end, float *l) {
  vc even[PARTS], odd[PARTS]; /* two independent sums, for instruction-level parallelism */
  for (int u = 0; u < PARTS; u++) { even[u] = *(const vc *)(l + u * LANES); odd[u] = (vc){0}; }
#pragma GCC unroll 8
  for (int64_t k = 0; k < end; k++) {
    float value = pixel[image[k]];
    for (int u = 0; u < PARTS; u++)
      if (k & 1) odd[u] += value * *(const vc *)(weights + k * stride + u * LANES);
      else even[u] += value * *(const vc *)(weights + k * stride + u * LANES);
  }
  for (int u = 0; u < PARTS; u++) *(vc *)(l + u * LANES) = even[u] + odd[u];
}

/* Adds the derivatives of the scores, times the run's pixels, to the gradient of the run's weights. */
INLINE void add_back(const float *pixel, const uint8_t *image, const float *l, int64_t stride, int64_t end, float *to) {
  vc d[PARTS];
  for (int u = 0; u < PARTS; u++) d[u] = *(const vc *)(l + u * LANES);
#pragma GCC unroll 8
  for (int64_t k = 0; k < end; k++) {
    float value = pixel[image[k]];
    for (int u = 0; u < PARTS; u++) *(vc *)(to + k * stride + u * LANES) += value * d[u];
  }
}

/* Writes the bright runs of an image, in order, to `runs`; returns their number. */
static int64_t bright_runs(const uint8_t *image, int64_t pixels, int32_t *runs) {
  int64_t found = 0;
  for (int64_t j = 0; j < pixels; j += 8) {
    runs[found] = (int32_t)j;
    found += !is_dark(image, j, pixels);
  }
  return found;
}

INLINE void run_by_run(const shape *s, const float *p, scratch *w, int m, float *l, float *g) {
  int64_t stride = s->classes16, found = g ? w->found[m] : (w->found[m] = bright_runs(w->image[m], s->pixels, w->runs[m]));
  for (int64_t k = 0; k < found; k++) {
    int64_t j = w->runs[m][k], end = j + 8 <= s->pixels ? 8 : s->pixels - j;
    const uint8_t *image = w->image[m] + j;
    if (stride == 16 && end == 8) {
      if (g) add_back(w->pixel, image, l, 16, 8, g + j * 16); else add_run(w->pixel, image, p + j * 16, 16, 8, l);
      continue;
    }
    for (int64_t c = 0; c < stride; c += 16)
      if (g) add_back(w->pixel, image, l + c, stride, end, g + j * stride + c);
      else add_run(w->pixel, image, p + j * stride + c, stride, end, l + c);
  }
}

INLINE void pixel_by_pixel(const truthfl_job *job, const float *p, scratch *w, int64_t row, float *l, float *g) {
  const uint16_t *where = job->where;
  const uint8_t *value = job->value;
  int64_t k = job->bright[row], end = job->bright[row + 1];
  if (!g) {
    vc even[PARTS], odd[PARTS];
    for (int u = 0; u < PARTS; u++) { even[u] = *(const vc *)(l + u * LANES); odd[u] = (vc){0}; }
    for (; k + 1 < end; k += 2)
      for (int u = 0; u < PARTS; u++) {
        even[u] += w->pixel[value[k]] * *(const vc *)(p + where[k] * 16 + u * LANES);
        odd[u] += w->pixel[value[k + 1]] * *(const vc *)(p + where[k + 1] * 16 + u * LANES);
      }
    if (k < end)
      for (int u = 0; u < PARTS; u++) even[u] += w->pixel[value[k]] * *(const vc *)(p + where[k] * 16 + u * LANES);
    for (int u = 0; u < PARTS; u++) *(vc *)(l + u * LANES) = even[u] + odd[u];
    return;
  }
  vc d[PARTS];
  for (int u = 0; u < PARTS; u++) d[u] = *(const vc *)(l + u * LANES);
  for (; k < end; k++)
    for (int u = 0; u < PARTS; u++) *(vc *)(g + where[k] * 16 + u * LANES) += w->pixel[value[k]] * d[u];
}

static void softmax_block(const truthfl_job *job, const shape *s, const float *p, scratch *w, float *g) {
  int64_t stride = s->classes16;
  for (int m = 0; m < w->count; m++) {
    float *l = w->logits + m * stride;
    memcpy(l, p + s->dense_biases, (size_t)stride * sizeof(float));
    if (w->row[m] >= 0) pixel_by_pixel(job, p, w, w->row[m], l, NULL); else run_by_run(s, p, w, m, l, NULL);
  }
  finish_logits(w, s, g != NULL);
  if (!g) return;
  for (int m = 0; m < w->count; m++) {
    float *l = w->logits + m * stride;
    for (int64_t c = 0; c < stride; c++) g[s->dense_biases + c] += l[c];
    if (w->row[m] >= 0) pixel_by_pixel(job, p, w, w->row[m], l, g); else run_by_run(s, p, w, m, l, g);
  }
}

/* ---- the CNN ---- */
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

#if LANES == 16
#define FILTERS 4 /* computed at once, so that the sums stay in registers */
#define WIDEST 2
#else
#define FILTERS 2
#define WIDEST 3
#endif

/* Adds one row of pixels to two neighbouring rows of the convolution: to the upper with row `filter` of the filters, to
   the lower with the row before it. */
INLINE void convolve_row(const int wide, const float *x, const float *const *filter, const int upper, const int lower,
                         vc a[2][FILTERS][WIDEST]) {
#pragma GCC unroll 5
  for (int l = 0; l < K; l++) {
    vc t[WIDEST];
    for (int n = 0; n < wide; n++) t[n] = *(const vc *)(x + l + n * LANES);
    for (int q = 0; q < FILTERS; q++) {
      if (upper)
        for (int n = 0; n < wide; n++) a[0][q][n] += filter[q][l] * t[n];
      if (lower)
        for (int n = 0; n < wide; n++) a[1][q][n] += filter[q][l - K] * t[n];
    }
  }
}

/* `wide` registers of columns of two neighbouring rows, FILTERS filters, pooled to half as many: value and origin. In a
   tie the upper one is taken, then the left. Filters are `f_step` apart, results `step`; only `real` filters and `here`
   results are written. */
INLINE void convolve_columns(const int wide, const float *x, const float *f, int64_t plane, int64_t width,
                             int64_t channels, int64_t f_step, const float *bias, int32_t origin, float *value,
                             int32_t *from, int64_t step, int64_t real, int64_t here) {
  vc a[2][FILTERS][WIDEST];
  for (int q = 0; q < FILTERS; q++)
    for (int n = 0; n < wide; n++) a[0][q][n] = a[1][q][n] = (vc){0};
  for (int64_t c = 0; c < channels; c++) {
    const float *row = x + c * plane, *filter[FILTERS];
    for (int q = 0; q < FILTERS; q++) filter[q] = f + q * f_step + c * K * K;
    convolve_row(wide, row, filter, 1, 0, a);
    for (int r = 1; r < K; r++) {
      row += width;
      for (int q = 0; q < FILTERS; q++) filter[q] += K;
      convolve_row(wide, row, filter, 1, 1, a);
    }
    for (int q = 0; q < FILTERS; q++) filter[q] += K;
    convolve_row(wide, row + width, filter, 0, 1, a);
  }
  const ic column = COUNTED;
  for (int q = 0; q < FILTERS; q++)
    for (int n = 0; n < wide; n++) {
      vc upper = a[0][q][n], under = a[1][q][n];
      ic lower = under > upper;
      vc best = (vc)((lower & (ic)under) | (~lower & (ic)upper));
      ic at = column + (lower & (int32_t)width) + (origin + n * LANES);
      vh left = EVEN(best), right = ODD(best);
      ih later = right > left, at_left = EVEN(at), at_right = ODD(at);
      vh z = (vh)((later & (ih)right) | (~later & (ih)left)) + bias[q];
      ih positive = z > 0.0f;
      z = (vh)(positive & (ih)z);
      at_left = (later & at_right) | (~later & at_left);
      int64_t left_over = here - n * (LANES / 2);
      if (q >= real || left_over <= 0) continue;
      if (left_over >= LANES / 2) {
        memcpy(value + q * step + n * (LANES / 2), &z, sizeof z);
        memcpy(from + q * step + n * (LANES / 2), &at_left, sizeof at_left);
      } else {
        memcpy(value + q * step + n * (LANES / 2), &z, (size_t)left_over * sizeof(float));
        memcpy(from + q * step + n * (LANES / 2), &at_left, (size_t)left_over * sizeof(int32_t));
      }
    }
}

static void convolve(const truthfl_job *job, const shape *s, const float *p, scratch *w, int m) {
  const float *x = w->x + m * w->x_step;
  int64_t per_filter = s->pooled_h * s->pooled_w, f_step = (int64_t)job->channels * K * K;
  for (int64_t f = 0; f < job->filters; f += FILTERS)
    for (int64_t row = 0; row < s->pooled_h; row++)
      for (int64_t column = 0; column < s->pooled_w; column += WIDEST * (LANES / 2)) {
        int32_t origin = (int32_t)(2 * row * job->width + 2 * column);
        int64_t unit = m * s->units16 + f * per_filter + row * s->pooled_w + column, here = s->pooled_w - column;
#define CONVOLVE(wide)                                                                                               \
  convolve_columns(wide, x + origin, p + f * f_step, s->plane, job->width, job->channels, f_step, p + s->biases + f, \
                   origin, w->act + unit, w->arg + unit, per_filter, job->filters - f, here)
        if (here <= LANES / 2) CONVOLVE(1);
        else if (here <= LANES) CONVOLVE(2);
        else CONVOLVE(WIDEST);
#undef CONVOLVE
      }
}

INLINE float sum_of(vc a) {
  float t[LANES];
  *(vc *)t = a;
  for (int half = LANES / 2; half; half /= 2)
    for (int j = 0; j < half; j++) t[j] += t[j + half];
  return t[0];
}

static void dense_forward(const shape *s, const float *p, scratch *w) {
  for (int64_t c = 0; c < s->classes; c++) {
    const float *d = p + s->dense + c * s->units16;
    vc sums[BLOCK];
    for (int m = 0; m < BLOCK; m++) sums[m] = (vc){0};
    for (int64_t i = 0; i < s->units16; i += LANES) {
      vc t = *(const vc *)(d + i);
      for (int m = 0; m < BLOCK; m++) sums[m] += t * *(const vc *)(w->act + m * s->units16 + i);
    }
    for (int m = 0; m < BLOCK; m++) w->logits[m * s->classes16 + c] = sum_of(sums[m]) + p[s->dense_biases + c];
  }
}

static void dense_backward(const shape *s, const float *p, scratch *w, float *g) {
  for (int m = 0; m < w->count; m++)
    for (int64_t c = 0; c < s->classes; c++) g[s->dense_biases + c] += w->logits[m * s->classes16 + c];
  for (int64_t i = 0; i < s->units16; i += LANES) { /* to the units */
    vc back[BLOCK];
    for (int m = 0; m < BLOCK; m++) back[m] = (vc){0};
    for (int64_t c = 0; c < s->classes; c++) {
      vc d = *(const vc *)(p + s->dense + c * s->units16 + i);
      for (int m = 0; m < BLOCK; m++) back[m] += w->logits[m * s->classes16 + c] * d;
    }
    for (int m = 0; m < BLOCK; m++) *(vc *)(w->back + m * s->units16 + i) = back[m];
  }
  for (int64_t i = 0; i < s->units16; i += LANES) { /* to the weights */
    vc act[BLOCK];
    for (int m = 0; m < BLOCK; m++) act[m] = *(const vc *)(w->act + m * s->units16 + i);
    for (int64_t c = 0; c < s->classes; c++) {
      vc even = {0}, odd = {0};
      for (int m = 0; m < BLOCK; m += 2) {
        even += w->logits[m * s->classes16 + c] * act[m];
        odd += w->logits[(m + 1) * s->classes16 + c] * act[m + 1];
      }
      *(vc *)(g + s->dense + c * s->units16 + i) += even + odd;
    }
  }
}

static void convolve_backward(const truthfl_job *job, const shape *s, scratch *w, int m, float *g) {
  const float *x = w->x + m * w->x_step;
  int64_t per_filter = s->pooled_h * s->pooled_w;
  for (int64_t f = 0; f < job->filters; f++) {
    int64_t first = m * s->units16 + f * per_filter;
    float bias = 0.0f;
    for (int64_t c = 0; c < job->channels; c++) {
      float *gf = g + (f * job->channels + c) * K * K;
      vr rows[K][ROW_PARTS];
      for (int k = 0; k < K; k++)
        for (int u = 0; u < ROW_PARTS; u++) rows[k][u] = (vr){0};
      for (int64_t i = first; i < first + per_filter; i++) {
        if (!(w->act[i] > 0.0f)) continue;
        float q = w->back[i];
        if (c == 0) bias += q;
        const float *from = x + c * s->plane + w->arg[i];
        for (int k = 0; k < K; k++)
          for (int u = 0; u < ROW_PARTS; u++) rows[k][u] += q * *(const vr *)(from + k * job->width + u * ROW_LANES);
      }
      for (int k = 0; k < K; k++)
        for (int l = 0; l < K; l++) gf[k * K + l] += rows[k][l / ROW_LANES][l % ROW_LANES];
    }
    g[s->biases + f] += bias;
  }
}

static void cnn_block(const truthfl_job *job, const shape *s, const float *p, scratch *w, float *g) {
  for (int m = 0; m < w->count; m++) {
    float *x = w->x + m * w->x_step;
    for (int64_t j = 0; j < s->pixels; j++) x[j] = (float)w->image[m][j] * (1.0f / 255.0f);
    convolve(job, s, p, w, m);
  }
  for (int m = w->count; m < BLOCK; m++) memset(w->act + m * s->units16, 0, (size_t)s->units16 * sizeof(float));
  dense_forward(s, p, w);
  finish_logits(w, s, g != NULL);
  if (!g) return;
  for (int m = w->count; m < BLOCK; m++) memset(w->logits + m * s->classes16, 0, (size_t)s->classes16 * sizeof(float));
  dense_backward(s, p, w, g);
  for (int m = 0; m < w->count; m++) convolve_backward(job, s, w, m, g);
}

/* ---- samples into blocks, blocks into gradients ---- */
static void flush(const truthfl_job *job, const shape *s, const float *p, scratch *w, float *g) {
  if (w->count == 0) return;
  if (job->filters) cnn_block(job, s, p, w, g); else softmax_block(job, s, p, w, g);
  w->count = 0;
}

INLINE void add(const truthfl_job *job, const shape *s, const float *p, scratch *w, float *g, const uint8_t *image,
                int64_t row, int32_t label, float weight) {
  w->image[w->count] = image;
  w->row[w->count] = row;
  w->label[w->count] = label;
  w->weight[w->count] = weight;
  if (++w->count == BLOCK) flush(job, s, p, w, g);
}

static void add_batch(const truthfl_job *job, const shape *s, const float *p, scratch *w, float *g, int64_t client,
                      int64_t round, int64_t step, float weight) {
  uint64_t key = with(with(with(purpose_key(job->seed, BATCH), (uint64_t)client), (uint64_t)round), (uint64_t)step);
  uint64_t size = (uint64_t)(job->starts[client + 1] - job->starts[client]);
  for (int64_t j = 0; j < job->batch[client]; j++) {
    int64_t at = job->starts[client] + (int64_t)(((draw(key, (uint64_t)j) >> 32) * size) >> 32);
    int64_t row = job->rows[at];
    add(job, s, p, w, g, job->images + row * s->pixels, job->bright ? row : -1, job->labels[at], weight);
  }
}

/* The update of the clients first … last−1 in one round, the input of `combine`. For one local step: the sum of their
   weighted gradients and (at index `total`) the sum of their shares; for more: the sum of their weighted changes. */
static void chunk(const truthfl_job *job, const shape *s, const float *p, int64_t round, int64_t first, int64_t last,
                  scratch *w, float *local, float *g, float *update) {
  w->count = 0;
  memset(update, 0, (size_t)(s->total + 1) * sizeof(float));
  for (int64_t i = first; i < last; i++) {
    if (!is_available(job, i, round)) continue;
    if (job->local_steps == 1) {
      update[s->total] += job->share[i];
      add_batch(job, s, p, w, update, i, round, 0, job->share[i] / (float)job->batch[i]);
      continue;
    }
    memcpy(local, p, (size_t)s->total * sizeof(float));
    for (int64_t h = 0; h < job->local_steps; h++) {
      memset(g, 0, (size_t)s->total * sizeof(float));
      add_batch(job, s, local, w, g, i, round, h, 1.0f / (float)job->batch[i]);
      flush(job, s, local, w, g);
      for (int64_t j = 0; j < s->total; j++) local[j] -= job->step_size * (g[j] + job->penalty * local[j]);
    }
    for (int64_t j = 0; j < s->total; j++) update[j] += job->share[i] * (local[j] - p[j]);
  }
  flush(job, s, p, w, update);
}

/* Adds the updates of all chunks, `step` floats apart, to the model, in order; the first update is overwritten. */
static void combine(const truthfl_job *job, const shape *s, float *restrict p, float *restrict update, int64_t chunks,
                    int64_t step) {
  float keep = 0.0f, size = job->step_size;
  for (int64_t k = 0; k < chunks; k++) keep += update[k * step + s->total];
  keep *= job->penalty;
  for (int64_t k = 1; k < chunks; k++)
    for (int64_t j = 0; j < s->total; j++) update[j] += update[k * step + j];
  if (job->local_steps == 1)
    for (int64_t j = 0; j < s->total; j++) p[j] += -size * (update[j] + keep * p[j]);
  else
    for (int64_t j = 0; j < s->total; j++) p[j] += update[j];
}

/* ---- functions called from Python ---- */
int64_t TARGET(inner_size)(const truthfl_job *job) { return shape_of(job).total; }

static void copy_parameters(const truthfl_job *job, float *flat, float *inner, int to_inner) {
  shape s = shape_of(job);
  float *out = flat;
#define PIECE(at, number)                                                            \
  do {                                                                               \
    if (to_inner) memcpy(inner + (at), out, (size_t)(number) * sizeof(float));       \
    else memcpy(out, inner + (at), (size_t)(number) * sizeof(float));                \
    out += (number);                                                                 \
  } while (0)
  if (to_inner) memset(inner, 0, (size_t)s.total * sizeof(float));
  if (job->filters == 0) {
    for (int64_t c = 0; c < s.classes; c++)
      for (int64_t j = 0; j < s.pixels; j++, out++)
        if (to_inner) inner[j * s.classes16 + c] = *out; else *out = inner[j * s.classes16 + c];
  } else {
    PIECE(0, (int64_t)job->filters * job->channels * K * K);
    PIECE(s.biases, job->filters);
    for (int64_t c = 0; c < s.classes; c++) PIECE(s.dense + c * s.units16, s.units);
  }
  PIECE(s.dense_biases, s.classes);
#undef PIECE
}

int TARGET(pack)(const truthfl_job *job, const float *flat, float *inner) {
  copy_parameters(job, (float *)flat, inner, 1);
  return 0;
}
int TARGET(unpack)(const truthfl_job *job, const float *inner, float *flat) {
  copy_parameters(job, flat, (float *)inner, 0);
  return 0;
}

int TARGET(chunk)(const truthfl_job *job, const float *inner, int64_t round, int64_t first, int64_t last, float *update) {
  shape s = shape_of(job);
  scratch *w = new_scratch(job, &s);
  float *local = malloc((size_t)(2 * s.total) * sizeof(float));
  if (w && local) chunk(job, &s, inner, round, first, last, w, local, local + s.total, update);
  int failed = !w || !local;
  free_scratch(w);
  free(local);
  return failed ? -1 : 0;
}

int TARGET(combine)(const truthfl_job *job, float *inner, float *update, int64_t chunks) {
  shape s = shape_of(job);
  combine(job, &s, inner, update, chunks, s.total + 1);
  return 0;
}

/* Rounds first_round … last_round−1, the clients in fixed chunks. The model and the updates are in memory of their own,
   in which rows of sixteen classes do not cross cache lines. */
int TARGET(run)(const truthfl_job *job, float *inner, int64_t first_round, int64_t last_round, const int64_t *bounds,
                int64_t chunks) {
  shape s = shape_of(job);
  scratch *w = new_scratch(job, &s);
  int64_t step = up(s.total + 1, LINE);
  float *memory = malloc((size_t)((3 + chunks) * step + LINE) * sizeof(float));
  if (!w || !memory) { free_scratch(w); free(memory); return -1; }
  float *p = (float *)(((uintptr_t)memory + 4 * LINE - 1) & ~(uintptr_t)(4 * LINE - 1));
  float *local = p + step, *g = local + step, *update = g + step;
  memcpy(p, inner, (size_t)s.total * sizeof(float));
  for (int64_t t = first_round; t < last_round; t++) {
    for (int64_t k = 0; k < chunks; k++)
      chunk(job, &s, p, t, bounds[k], bounds[k + 1], w, local, g, update + k * step);
    combine(job, &s, p, update, chunks, step);
  }
  memcpy(inner, p, (size_t)s.total * sizeof(float));
  free_scratch(w);
  free(memory);
  return 0;
}

/* Σ weight · ∇f over n given images (without the penalty), in the inner layout. */
int TARGET(gradient)(const truthfl_job *job, const float *inner, const uint8_t *images, const int32_t *labels,
                     const float *weights, int64_t n, float *g) {
  shape s = shape_of(job);
  scratch *w = new_scratch(job, &s);
  if (!w) return -1;
  memset(g, 0, (size_t)s.total * sizeof(float));
  for (int64_t i = 0; i < n; i++) add(job, &s, inner, w, g, images + i * s.pixels, -1, labels[i], weights[i]);
  flush(job, &s, inner, w, g);
  free_scratch(w);
  return 0;
}

/* Sum of losses (without the penalty) and number of correct predictions over n given images. */
int TARGET(evaluate)(const truthfl_job *job, const float *inner, const uint8_t *images, const int32_t *labels, int64_t n,
                     double *loss, int64_t *correct) {
  shape s = shape_of(job);
  scratch *w = new_scratch(job, &s);
  if (!w) return -1;
  for (int64_t i = 0; i < n; i++) add(job, &s, inner, w, NULL, images + i * s.pixels, -1, labels[i], 1.0f);
  flush(job, &s, inner, w, NULL);
  *loss = w->loss;
  *correct = w->correct;
  free_scratch(w);
  return 0;
}
