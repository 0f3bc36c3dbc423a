/* The inputs of one training run: the same fields, in the same order, as `KernelJob` in learning/training/compute.py. */
#ifndef TRUTHFL_JOB_H
#define TRUTHFL_JOB_H
#include <stdint.h>

typedef struct {
  const uint8_t *images;    /* n images of channels × height × width bytes */
  const int64_t *rows;      /* number of the image of each client's samples, ordered by client */
  const int32_t *labels;    /* their labels, in the same order */
  const int64_t *starts;    /* start of each client's samples, and their total number */
  const int64_t *batch;     /* D_i */
  const float *share;       /* p_i γ_i / q_i, the factor of a report in the sum */
  const double *available;  /* q_i */
  const int64_t *bright;    /* softmax regression only: start of each image's bright pixels in the next two, or NULL */
  const uint16_t *where;    /* their positions */
  const uint8_t *value;     /* and values */
  uint64_t seed;
  int64_t local_steps;
  float step_size;
  float penalty;            /* λ of the term (λ/2)‖w‖² */
  float momentum;           /* the share of the last round's change that is added in the next one */
  int32_t height, width, channels, classes;
  int32_t filters;          /* 0: softmax regression; otherwise the one-layer CNN */
} truthfl_job;
#endif
