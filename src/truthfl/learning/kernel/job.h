/* What one training run is, for the kernel: the same fields, in the same order, as `Job` in learning/compiled.py. */
#ifndef TRUTHFL_JOB_H
#define TRUTHFL_JOB_H
#include <stdint.h>

typedef struct {
  const uint8_t *images;    /* n images of channels × height × width bytes */
  const int64_t *rows;      /* which image each client's sample is, client after client */
  const int32_t *labels;    /* the label she trains it with, in the same order */
  const int64_t *starts;    /* where each client's samples start; one entry more than clients */
  const int64_t *batch;     /* D_i */
  const float *share;       /* p_i γ_i / q_i, the factor of a report in the sum */
  const double *available;  /* q_i */
  const int64_t *bright;    /* where each image's bright pixels start in the next two, or NULL: softmax regression only */
  const uint16_t *where;    /* their positions */
  const uint8_t *value;     /* and values */
  uint64_t seed;
  int64_t local_steps;
  float step_size;
  float penalty;            /* λ of the term (λ/2)‖w‖² */
  int32_t height, width, channels, classes;
  int32_t filters;          /* 0: softmax regression; otherwise the one-layer CNN */
} truthfl_job;
#endif
