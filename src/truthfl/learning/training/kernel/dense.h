/* The dense layer and the softmax above it. */

/* Softmax and cross-entropy of `count` images: logits → weighted derivatives, in place; or loss and correct ones. */
static void finish_logits(scratch *w, const shape *s, int count, int gradient) {
  for (int m = 0; m < count; m++) {
    const sample *of = w->queue + m;
    float *l = w->logits + m * s->classes16;
    int best = 0;
    for (int c = 1; c < s->classes; c++) if (l[c] > l[best]) best = c;
    float top = l[best], at_label = l[of->label], sum = 0.0f;
    for (int c = 0; c < s->classes; c++) { l[c] = expf(l[c] - top); sum += l[c]; }
    if (!gradient) {
      w->loss += (double)of->weight * ((double)top + log((double)sum) - (double)at_label);
      w->correct += best == of->label;
      continue;
    }
    float factor = of->weight / sum;
    for (int c = 0; c < s->classes; c++) l[c] *= factor;
    l[of->label] -= of->weight;
    for (int64_t c = s->classes; c < s->classes16; c++) l[c] = 0.0f;
  }
}

/* Scores computed at once, so that the sums stay in registers: of TILE_CLASSES classes for TILE_IMAGES images. */
#define TILE_CLASSES 5
#if LANES == 16 || defined(__aarch64__)
#define TILE_IMAGES 4
#else
#define TILE_IMAGES 2
#endif

INLINE void dense_tile(const int classes, const shape *s, const float *p, scratch *w, int64_t c, int m) {
  const float *d = p + s->dense + c * s->units16, *act = w->act + m * s->units16;
  int64_t units16 = s->units16;
  vc sums[TILE_CLASSES][TILE_IMAGES];
  for (int a = 0; a < classes; a++)
    for (int b = 0; b < TILE_IMAGES; b++) sums[a][b] = (vc){0};
  for (int64_t i = 0; i < units16; i += LANES) {
    vc x[TILE_IMAGES];
    for (int b = 0; b < TILE_IMAGES; b++) x[b] = *(const vc *)(act + b * units16 + i);
    for (int a = 0; a < classes; a++) {
      vc t = *(const vc *)(d + a * units16 + i);
      for (int b = 0; b < TILE_IMAGES; b++) sums[a][b] += t * x[b];
    }
  }
  for (int a = 0; a < classes; a++)
    for (int b = 0; b < TILE_IMAGES; b++)
      w->logits[(m + b) * s->classes16 + c + a] = sum_of(sums[a][b]) + p[s->dense_biases + c + a];
}

static void dense_forward(const shape *s, const float *p, scratch *w, int count) {
  int64_t c = 0;
  for (; c + TILE_CLASSES <= s->classes; c += TILE_CLASSES)
    for (int m = 0; m < count; m += TILE_IMAGES) dense_tile(TILE_CLASSES, s, p, w, c, m);
  for (; c < s->classes; c++)
    for (int m = 0; m < count; m += TILE_IMAGES) dense_tile(1, s, p, w, c, m);
}

/* The derivative by the units, from that by the logits. */
static void dense_to_units(const shape *s, const float *p, scratch *w) {
  int64_t units16 = s->units16;
  for (int64_t i = 0; i < units16; i += LANES) {
    vc back[BLOCK];
    for (int m = 0; m < BLOCK; m++) back[m] = (vc){0};
    for (int64_t c = 0; c < s->classes; c++) {
      vc d = *(const vc *)(p + s->dense + c * units16 + i);
      for (int m = 0; m < BLOCK; m++) back[m] += w->logits[m * s->classes16 + c] * d;
    }
    for (int m = 0; m < BLOCK; m++) *(vc *)(w->back + m * units16 + i) = back[m];
  }
}

/* Adds the derivative by the weights and biases, from that by the logits, to the gradient. */
static void dense_to_weights(const shape *s, scratch *w, int count, float *g) {
  int64_t units16 = s->units16;
  for (int m = 0; m < count; m++)
    for (int64_t c = 0; c < s->classes; c++) g[s->dense_biases + c] += w->logits[m * s->classes16 + c];
  for (int64_t i = 0; i < units16; i += LANES) {
    vc act[BLOCK];
    for (int m = 0; m < BLOCK; m++) act[m] = *(const vc *)(w->act + m * units16 + i);
    for (int64_t c = 0; c < s->classes; c++) {
      const float *l = w->logits + c;
      vc even = {0}, odd = {0};
      for (int m = 0; m < BLOCK; m += 2) {
        even += l[m * s->classes16] * act[m];
        odd += l[(m + 1) * s->classes16] * act[m + 1];
      }
      *(vc *)(g + s->dense + c * units16 + i) += even + odd;
    }
  }
}

INLINE void to_floats(const uint8_t *restrict image, int64_t pixels, float *restrict x) {
  for (int64_t j = 0; j < pixels; j++) x[j] = (float)image[j] * (1.0f / 255.0f);
}

/* Images that are not there are 0, and so are their derivatives. */
static void clear_rest(float *each, int count, int64_t step) {
  memset(each + count * step, 0, (size_t)((BLOCK - count) * step) * sizeof(float));
}

/* Softmax regression on whole images: a dense layer of pixels. */
static void softmax_block(const truthfl_job *job, const shape *s, const float *p, scratch *w, int count, float *g) {
  (void)job;
  for (int m = 0; m < count; m++) to_floats(w->queue[m].image, s->pixels, w->act + m * s->units16);
  clear_rest(w->act, count, s->units16);
  dense_forward(s, p, w, count);
  finish_logits(w, s, count, g != NULL);
  if (!g) return;
  clear_rest(w->logits, count, s->classes16);
  dense_to_weights(s, w, count, g);
}
