/* The functions called from Python, compiled once per instruction set: TARGET(name) adds the set's suffix to each name. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "job.h"
#include "vectors.h"
#include "draws.h"
#include "shape.h"
#include "dense.h"
#include "bright.h"
#include "convolution.h"
#include "rounds.h"
#include "team.h"

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
  if (job->bright) {
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
  combine(job, &s, inner, NULL, update, chunks, s.total + 1);
  return 0;
}

/* Rounds first_round … last_round−1 on so many threads, the clients in fixed chunks; `before` as in `combine`. */
int TARGET(run)(const truthfl_job *job, float *inner, float *before, int64_t first_round, int64_t last_round,
                const int64_t *bounds, int64_t chunks, int64_t threads) {
  return run_team(job, inner, before, first_round, last_round, bounds, chunks, threads);
}

/* Σ weight · ∇f over n given images (without the penalty), in the inner layout; the job has no bright pixels. */
int TARGET(gradient)(const truthfl_job *job, const float *inner, const uint8_t *images, const int32_t *labels,
                     const float *weights, int64_t n, float *g) {
  shape s = shape_of(job);
  scratch *w = new_scratch(job, &s);
  if (!w) return -1;
  memset(g, 0, (size_t)s.total * sizeof(float));
  for (int64_t i = 0; i < n; i++) add(job, &s, inner, w, g, (sample){images + i * s.pixels, 0, labels[i], weights[i]});
  flush(job, &s, inner, w, g);
  free_scratch(w);
  return 0;
}

/* Sum of losses (without the penalty) and number of correct predictions over n given images; as above. */
int TARGET(evaluate)(const truthfl_job *job, const float *inner, const uint8_t *images, const int32_t *labels, int64_t n,
                     double *loss, int64_t *correct) {
  shape s = shape_of(job);
  scratch *w = new_scratch(job, &s);
  if (!w) return -1;
  for (int64_t i = 0; i < n; i++) add(job, &s, inner, w, NULL, (sample){images + i * s.pixels, 0, labels[i], 1.0f});
  flush(job, &s, inner, w, NULL);
  *loss = w->loss;
  *correct = w->correct;
  free_scratch(w);
  return 0;
}
