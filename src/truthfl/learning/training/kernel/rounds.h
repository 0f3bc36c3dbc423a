/* Samples into blocks, blocks into gradients, gradients of clients into a round's update. */

/* Computes the first block of the queue. */
static void next_block(const truthfl_job *job, const shape *s, const float *p, scratch *w, float *g) {
  int count = w->count < BLOCK ? w->count : BLOCK;
  if (job->filters) cnn_block(job, s, p, w, count, g);
  else if (job->bright) bright_block(job, s, p, w, count, g);
  else softmax_block(job, s, p, w, count, g);
  w->count -= count;
  memmove(w->queue, w->queue + BLOCK, (size_t)w->count * sizeof(sample));
}

static void flush(const truthfl_job *job, const shape *s, const float *p, scratch *w, float *g) {
  while (w->count) next_block(job, s, p, w, g);
}

INLINE void fetch(const void *from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 4 * LINE) __builtin_prefetch((const char *)from + at);
}

INLINE void add(const truthfl_job *job, const shape *s, const float *p, scratch *w, float *g, sample one) {
  w->queue[w->count++] = one;
  if (job->bright) {
    int64_t from = job->bright[one.row], number = job->bright[one.row + 1] - from;
    fetch(job->where + from, 2 * number);
    fetch(job->value + from, number);
  } else fetch(one.image, s->pixels);
  if (w->count == 2 * BLOCK) next_block(job, s, p, w, g);
}

static void add_batch(const truthfl_job *job, const shape *s, const float *p, scratch *w, float *g, int64_t client,
                      int64_t round, int64_t step, float weight) {
  uint64_t key = with(with(with(purpose_key(job->seed, BATCH), (uint64_t)client), (uint64_t)round), (uint64_t)step);
  uint64_t size = (uint64_t)(job->starts[client + 1] - job->starts[client]);
  for (int64_t j = 0; j < job->batch[client]; j++) {
    int64_t at = job->starts[client] + (int64_t)(((draw(key, (uint64_t)j) >> 32) * size) >> 32);
    int64_t row = job->rows[at];
    add(job, s, p, w, g, (sample){job->images + row * s->pixels, row, job->labels[at], weight});
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

/* Adds the updates of all chunks, `step` floats apart, to the model, in order; the first update is overwritten. Unless
   `before` is NULL, momentum is added too: `before` is the model before the last round, and becomes that before this. */
static void combine(const truthfl_job *job, const shape *s, float *restrict p, float *restrict before,
                    float *restrict update, int64_t chunks, int64_t step) {
  float keep = 0.0f, size = job->step_size;
  for (int64_t k = 0; k < chunks; k++) keep += update[k * step + s->total];
  keep *= job->penalty;
  for (int64_t k = 1; k < chunks; k++)
    for (int64_t j = 0; j < s->total; j++) update[j] += update[k * step + j];
  if (before) {
    float rate = job->local_steps == 1 ? -size : 1.0f; /* with several steps, `keep` is 0 */
    for (int64_t j = 0; j < s->total; j++) {
      float now = p[j];
      p[j] = now + rate * (update[j] + keep * now) + job->momentum * (now - before[j]);
      before[j] = now;
    }
  } else if (job->local_steps == 1)
    for (int64_t j = 0; j < s->total; j++) p[j] += -size * (update[j] + keep * p[j]);
  else
    for (int64_t j = 0; j < s->total; j++) p[j] += update[j];
}
