/* Calls every function of the kernel on tight buffers, for odd shapes and few samples.

   usage: exercise [SET [FILE]]
   SET is an instruction set, by default all that this machine has; FILE gets all results as floats. The status is 3 if the
   machine has no such instruction set. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "job.h"

const char *truthfl_instruction_set(void);

typedef struct {
  const char *name;
  int64_t (*inner_size)(const truthfl_job *);
  int (*pack)(const truthfl_job *, const float *, float *);
  int (*unpack)(const truthfl_job *, const float *, float *);
  int (*chunk)(const truthfl_job *, const float *, int64_t, int64_t, int64_t, float *);
  int (*combine)(const truthfl_job *, float *, float *, int64_t);
  int (*run)(const truthfl_job *, float *, int64_t, int64_t, const int64_t *, int64_t, int64_t);
  int (*gradient)(const truthfl_job *, const float *, const uint8_t *, const int32_t *, const float *, int64_t, float *);
  int (*evaluate)(const truthfl_job *, const float *, const uint8_t *, const int32_t *, int64_t, double *, int64_t *);
} functions;

#define DECLARE(set)                                                                                                   \
  int64_t truthfl_##set##_inner_size(const truthfl_job *);                                                             \
  int truthfl_##set##_pack(const truthfl_job *, const float *, float *);                                               \
  int truthfl_##set##_unpack(const truthfl_job *, const float *, float *);                                             \
  int truthfl_##set##_chunk(const truthfl_job *, const float *, int64_t, int64_t, int64_t, float *);                   \
  int truthfl_##set##_combine(const truthfl_job *, float *, float *, int64_t);                                         \
  int truthfl_##set##_run(const truthfl_job *, float *, int64_t, int64_t, const int64_t *, int64_t, int64_t);          \
  int truthfl_##set##_gradient(const truthfl_job *, const float *, const uint8_t *, const int32_t *, const float *,    \
                               int64_t, float *);                                                                      \
  int truthfl_##set##_evaluate(const truthfl_job *, const float *, const uint8_t *, const int32_t *, int64_t,          \
                               double *, int64_t *);                                                                   \
  static const functions set##_functions = {#set,                 truthfl_##set##_inner_size, truthfl_##set##_pack,    \
                                            truthfl_##set##_unpack, truthfl_##set##_chunk,    truthfl_##set##_combine, \
                                            truthfl_##set##_run,  truthfl_##set##_gradient,   truthfl_##set##_evaluate};
DECLARE(plain)
#if defined(__x86_64__)
DECLARE(avx2)
DECLARE(avx512)
static const functions *const SETS[] = {&plain_functions, &avx2_functions, &avx512_functions};
#else
static const functions *const SETS[] = {&plain_functions};
#endif
enum { NUMBER_OF_SETS = sizeof SETS / sizeof *SETS, THREADS = 2 };

static void *exactly(int64_t bytes) { return malloc((size_t)(bytes ? bytes : 1)); }

/* Numbers in [0, 1) without a pattern: with one, pooled values tie, and rounding decides which of them is the largest. */
static float scattered(int64_t i) {
  uint32_t x = (uint32_t)i * 2654435769u;
  x = (x ^ (x >> 15)) * 2246822519u;
  return (float)((x ^ (x >> 13)) >> 8) * 0x1p-24f;
}

static int64_t parameters(const truthfl_job *j) {
  int64_t pixels = (int64_t)j->height * j->width * j->channels;
  if (!j->filters) return (int64_t)j->classes * (pixels + 1);
  int64_t units = (int64_t)j->filters * ((j->height - 4) / 2) * ((j->width - 4) / 2);
  return (int64_t)j->filters * (j->channels * 25 + 1) + (int64_t)j->classes * (units + 1);
}

static void keep(FILE *to, const float *numbers, int64_t count) {
  if (to && fwrite(numbers, sizeof(float), (size_t)count, to) != (size_t)count) exit(1);
}

/* The bright pixels of all images, as `bright_pixels` in learning/training/compute.py finds them. */
static void find_bright(truthfl_job *job, const uint8_t *x, int64_t images, int64_t pixels) {
  int64_t *start = exactly((images + 1) * 8), found = 0;
  for (int64_t i = 0; i < images * pixels; i++) found += x[i] != 0;
  uint16_t *where = exactly(2 * found);
  uint8_t *value = exactly(found);
  found = 0;
  for (int64_t i = 0; i < images; i++) {
    start[i] = found;
    for (int64_t j = 0; j < pixels; j++)
      if (x[i * pixels + j]) { where[found] = (uint16_t)j; value[found++] = x[i * pixels + j]; }
  }
  start[images] = found;
  job->bright = start; job->where = where; job->value = value;
}

/* Trains on one local step and on three, first a round by hand, then three rounds by several threads. */
static void exercise_training(const functions *f, truthfl_job job, const float *flat, int64_t clients, FILE *to) {
  int64_t size = parameters(&job), inner_size = f->inner_size(&job), bounds[5] = {0, 1, 2, 3, 4};
  float *inner = exactly(inner_size * 4), *update = exactly((inner_size + 1) * 4), *trained = exactly(size * 4);
  f->pack(&job, flat, inner);
  for (int steps = 1; steps <= 3; steps += 2) {
    job.local_steps = steps;
    f->chunk(&job, inner, 0, 0, clients, update);
    f->combine(&job, inner, update, 1);
    f->run(&job, inner, 1, 4, bounds, clients, THREADS);
    f->unpack(&job, inner, trained);
    keep(to, trained, size);
  }
  free(inner); free(update); free(trained);
}

static void exercise(const functions *f, truthfl_job job, int64_t images, int64_t clients, FILE *to) {
  int64_t pixels = (int64_t)job.height * job.width * job.channels, size = parameters(&job);
  int64_t inner_size = f->inner_size(&job), correct;
  uint8_t *x = exactly(images * pixels);
  int32_t *y = exactly(images * 4);
  int64_t *rows = exactly(images * 8), *starts = exactly((clients + 1) * 8), *batch = exactly(clients * 8);
  float *share = exactly(clients * 4), *weight = exactly(images * 4), *flat = exactly(size * 4);
  float *inner = exactly(inner_size * 4), *said = exactly(inner_size * 4), *gradient = exactly(size * 4), total;
  double *available = exactly(clients * 8), loss;
  for (int64_t i = 0; i < images * pixels; i++) x[i] = (uint8_t)(i % 5 ? 0 : 256.0f * scattered(i));
  for (int64_t i = 0; i < images; i++) { y[i] = (int32_t)(i % job.classes); rows[i] = i; weight[i] = 0.1f; }
  for (int64_t i = 0; i <= clients; i++) starts[i] = i * images / clients;
  for (int64_t i = 0; i < clients; i++) { batch[i] = 1 + i * 9; share[i] = 0.3f; available[i] = i ? 0.7 : 1.0; }
  for (int64_t i = 0; i < size; i++) flat[i] = 0.4f * scattered(i) - 0.2f;
  job.images = x; job.rows = rows; job.labels = y; job.starts = starts; job.batch = batch; job.share = share;
  job.available = available; job.seed = 42; job.step_size = 0.1f; job.penalty = 0.01f;
  f->pack(&job, flat, inner);
  f->gradient(&job, inner, x, y, weight, images, said);
  f->unpack(&job, said, gradient);
  f->evaluate(&job, inner, x, y, images, &loss, &correct);
  keep(to, gradient, size);
  total = (float)loss;
  keep(to, &total, 1);
  exercise_training(f, job, flat, clients, to);
  if (!job.filters) {
    find_bright(&job, x, images, pixels);
    exercise_training(f, job, flat, clients, to);
    free((void *)job.bright); free((void *)job.where); free((void *)job.value);
  }
  free(x); free(y); free(rows); free(starts); free(batch); free(share); free(weight); free(available);
  free(flat); free(inner); free(said); free(gradient);
}

static int exercise_all(const functions *f, FILE *to) {
  const int shapes[][5] = {{10, 28, 1, 10, 8}, {6, 6, 1, 2, 1}, {7, 9, 3, 17, 5}, {6, 37, 2, 16, 4}, {21, 6, 1, 3, 7},
                           {6, 44, 1, 4, 3},   {28, 28, 1, 10, 0}, {1, 1, 1, 2, 0}, {1, 67, 1, 23, 0}, {8, 8, 3, 16, 0}};
  int done = 0;
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
    for (int64_t images = 1; images <= 19; images += 9)
      for (int64_t clients = 1; clients <= images && clients <= 4; clients += 3, done++) {
        truthfl_job job;
        memset(&job, 0, sizeof job);
        job.height = shapes[k][0]; job.width = shapes[k][1]; job.channels = shapes[k][2];
        job.classes = shapes[k][3]; job.filters = shapes[k][4];
        exercise(f, job, images, clients, to);
      }
  return done;
}

int main(int count, char **words) {
  const char *best = truthfl_instruction_set();
  FILE *to = count > 2 ? fopen(words[2], "wb") : NULL;
  int done = 0;
  for (int k = 0; k < NUMBER_OF_SETS; k++) {
    if (count < 2 || !strcmp(words[1], SETS[k]->name)) done = exercise_all(SETS[k], to);
    if (!strcmp(best, SETS[k]->name)) break; /* the later ones are wider */
  }
  if (to) fclose(to);
  if (!done) fprintf(stderr, "this machine has instruction sets up to %s, not %s\n", best, words[1]);
  else printf("%d shapes, %s: nothing found\n", done, count > 1 ? words[1] : best);
  return done ? 0 : 3;
}
