/* Softmax regression on mostly dark images: only the bright pixels are read. */

/* Adds the image's pixels to the scores of sixteen classes, whose weights begin at `p`, rows `stride` apart. */
INLINE void bright_forward(const truthfl_job *job, const float *pixel, const float *p, int64_t row, const int64_t stride,
                           float *l) {
  const uint16_t *where = job->where;
  const uint8_t *value = job->value;
  int64_t k = job->bright[row], end = job->bright[row + 1];
  vc even[PARTS], odd[PARTS]; /* two independent sums, for instruction-level parallelism */
  for (int u = 0; u < PARTS; u++) { even[u] = *(const vc *)(l + u * LANES); odd[u] = (vc){0}; }
  for (; k + 1 < end; k += 2)
    for (int u = 0; u < PARTS; u++) {
      even[u] += pixel[value[k]] * *(const vc *)(p + where[k] * stride + u * LANES);
      odd[u] += pixel[value[k + 1]] * *(const vc *)(p + where[k + 1] * stride + u * LANES);
    }
  if (k < end)
    for (int u = 0; u < PARTS; u++) even[u] += pixel[value[k]] * *(const vc *)(p + where[k] * stride + u * LANES);
  for (int u = 0; u < PARTS; u++) *(vc *)(l + u * LANES) = even[u] + odd[u];
}

/* Adds the derivatives of sixteen scores, times the image's pixels, to the gradient of their weights. */
INLINE void bright_back(const truthfl_job *job, const float *pixel, const float *l, int64_t row, const int64_t stride,
                        float *g) {
  vc d[PARTS];
  for (int u = 0; u < PARTS; u++) d[u] = *(const vc *)(l + u * LANES);
  for (int64_t k = job->bright[row]; k < job->bright[row + 1]; k++)
    for (int u = 0; u < PARTS; u++) *(vc *)(g + job->where[k] * stride + u * LANES) += pixel[job->value[k]] * d[u];
}

static void bright_block(const truthfl_job *job, const shape *s, const float *p, scratch *w, int count, float *g) {
  int64_t stride = s->classes16;
  for (int m = 0; m < count; m++) {
    float *l = w->logits + m * stride;
    memcpy(l, p + s->dense_biases, (size_t)stride * sizeof(float));
    if (stride == 16) bright_forward(job, w->pixel, p, w->queue[m].row, 16, l);
    else for (int64_t c = 0; c < stride; c += 16) bright_forward(job, w->pixel, p + c, w->queue[m].row, stride, l + c);
  }
  finish_logits(w, s, count, g != NULL);
  if (!g) return;
  for (int m = 0; m < count; m++) {
    float *l = w->logits + m * stride;
    for (int64_t c = 0; c < stride; c++) g[s->dense_biases + c] += l[c];
    if (stride == 16) bright_back(job, w->pixel, l, w->queue[m].row, 16, g);
    else for (int64_t c = 0; c < stride; c += 16) bright_back(job, w->pixel, l + c, w->queue[m].row, stride, g + c);
  }
}
