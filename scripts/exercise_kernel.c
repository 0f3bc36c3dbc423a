/* Calls every function of the kernel, for every instruction set this machine has, on tight buffers. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "job.h"

const char *truthfl_instruction_set(void);

#define DECLARE(set)                                                                                                   \
  int64_t truthfl_##set##_inner_size(const truthfl_job *);                                                             \
  int truthfl_##set##_pack(const truthfl_job *, const float *, float *);                                               \
  int truthfl_##set##_unpack(const truthfl_job *, const float *, float *);                                             \
  int truthfl_##set##_chunk(const truthfl_job *, const float *, int64_t, int64_t, int64_t, float *);                   \
  int truthfl_##set##_combine(const truthfl_job *, float *, float *, int64_t);                                         \
  int truthfl_##set##_run(const truthfl_job *, float *, int64_t, int64_t, const int64_t *, int64_t);                   \
  int truthfl_##set##_gradient(const truthfl_job *, const float *, const uint8_t *, const int32_t *, const float *,    \
                               int64_t, float *);                                                                      \
  int truthfl_##set##_evaluate(const truthfl_job *, const float *, const uint8_t *, const int32_t *, int64_t,          \
                               double *, int64_t *);
DECLARE(plain)
#if defined(__x86_64__)
DECLARE(avx2)
DECLARE(avx512)
#endif

static void *exactly(size_t bytes) { return malloc(bytes ? bytes : 1); }

static int64_t parameters(const truthfl_job *j) {
  int64_t pixels = (int64_t)j->height * j->width * j->channels;
  if (!j->filters) return (int64_t)j->classes * (pixels + 1);
  int64_t units = (int64_t)j->filters * ((j->height - 4) / 2) * ((j->width - 4) / 2);
  return (int64_t)j->filters * (j->channels * 25 + 1) + (int64_t)j->classes * (units + 1);
}

#define EXERCISE(set)                                                                                                  \
  static void exercise_##set(truthfl_job job, int64_t images, int64_t clients) {                                       \
    int64_t pixels = (int64_t)job.height * job.width * job.channels, size = parameters(&job);                          \
    int64_t inner_size = truthfl_##set##_inner_size(&job);                                                             \
    uint8_t *x = exactly((size_t)(images * pixels));                                                                   \
    int32_t *y = exactly((size_t)images * 4);                                                                          \
    int64_t *rows = exactly((size_t)images * 8), *starts = exactly((size_t)(clients + 1) * 8);                         \
    int64_t *batch = exactly((size_t)clients * 8), bounds[2] = {0, clients};                                           \
    float *share = exactly((size_t)clients * 4), *weight = exactly((size_t)images * 4);                                \
    double *available = exactly((size_t)clients * 8), loss;                                                            \
    float *flat = exactly((size_t)size * 4), *inner = exactly((size_t)inner_size * 4);                                 \
    float *said = exactly((size_t)(inner_size + 1) * 4);                                                               \
    int64_t correct;                                                                                                   \
    for (int64_t i = 0; i < images * pixels; i++) x[i] = (uint8_t)((i * 7919) % 5 ? 0 : (i * 31) % 256);               \
    for (int64_t i = 0; i < images; i++) { y[i] = (int32_t)(i % job.classes); rows[i] = i; weight[i] = 0.1f; }         \
    for (int64_t i = 0; i <= clients; i++) starts[i] = i * images / clients;                                           \
    for (int64_t i = 0; i < clients; i++) { batch[i] = 1 + i * 9; share[i] = 0.3f; available[i] = i ? 0.7 : 1.0; }     \
    for (int64_t i = 0; i < size; i++) flat[i] = (float)((i * 37) % 19 - 9) * 0.02f;                                   \
    job.images = x; job.rows = rows; job.labels = y; job.starts = starts; job.batch = batch; job.share = share;        \
    job.available = available; job.seed = 42; job.step_size = 0.1f; job.penalty = 0.01f;                               \
    truthfl_##set##_pack(&job, flat, inner);                                                                           \
    truthfl_##set##_gradient(&job, inner, x, y, weight, images, said);                                                 \
    truthfl_##set##_evaluate(&job, inner, x, y, images, &loss, &correct);                                              \
    for (int steps = 1; steps <= 3; steps += 2) {                                                                      \
      job.local_steps = steps;                                                                                         \
      truthfl_##set##_chunk(&job, inner, 0, 0, clients, said);                                                         \
      truthfl_##set##_combine(&job, inner, said, 1);                                                                   \
      truthfl_##set##_run(&job, inner, 0, 3, bounds, 1);                                                               \
    }                                                                                                                  \
    truthfl_##set##_unpack(&job, inner, flat);                                                                         \
    free(x); free(y); free(rows); free(starts); free(batch); free(share); free(weight); free(available);               \
    free(flat); free(inner); free(said);                                                                               \
  }
EXERCISE(plain)
#if defined(__x86_64__)
EXERCISE(avx2)
EXERCISE(avx512)
#endif

int main(void) {
  const int shapes[][5] = {{28, 28, 1, 10, 8}, {6, 6, 1, 2, 1}, {7, 9, 3, 17, 5}, {6, 37, 2, 16, 4}, {21, 6, 1, 3, 7},
                           {28, 28, 1, 10, 0}, {1, 1, 1, 2, 0}, {1, 67, 1, 23, 0}, {8, 8, 3, 16, 0}};
  const char *best = truthfl_instruction_set();
  int done = 0;
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
    for (int64_t images = 1; images <= 19; images += 9)
      for (int64_t clients = 1; clients <= images && clients <= 4; clients += 3) {
        truthfl_job job;
        memset(&job, 0, sizeof job);
        job.height = shapes[k][0]; job.width = shapes[k][1]; job.channels = shapes[k][2];
        job.classes = shapes[k][3]; job.filters = shapes[k][4];
        exercise_plain(job, images, clients);
#if defined(__x86_64__)
        if (strcmp(best, "plain")) exercise_avx2(job, images, clients);
        if (!strcmp(best, "avx512")) exercise_avx512(job, images, clients);
#endif
        done++;
      }
  printf("%d shapes, instruction sets up to %s: nothing found\n", done, best);
  return 0;
}
