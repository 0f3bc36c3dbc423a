/* Sizes, the inner layout of the parameters, and the memory of a worker.

   Inner layout (see `copy_parameters`); padding is 0 and stays 0:
     CNN       filters [filter, padded to 4][channel][25], biases [padded], then a dense layer of the pooled units
     softmax   a dense layer of the pixels
     softmax on bright pixels only (`job->bright`)   weights [pixel][class, padded to 16], biases [padded]
     dense layer   weights [class][unit, padded to 16], biases [class, padded to 16] */
#define BLOCK 8 /* images go through in blocks, so that the weights are read once per block */
#define K 5     /* filters are 5 × 5 */

INLINE int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
typedef struct {
  int64_t pixels, plane, classes, classes16, pooled_h, pooled_w, units, units16, biases, dense, dense_biases, total;
} shape;

INLINE shape shape_of(const truthfl_job *job) {
  shape s;
  memset(&s, 0, sizeof s);
  s.plane = (int64_t)job->height * job->width;
  s.pixels = s.units = s.plane * job->channels;
  s.classes = job->classes;
  s.classes16 = up(job->classes, 16);
  if (job->filters) {
    s.pooled_h = (job->height - K + 1) / 2;
    s.pooled_w = (job->width - K + 1) / 2;
    s.units = job->filters * s.pooled_h * s.pooled_w;
    s.biases = up(job->filters, 4) * job->channels * K * K;
    s.dense = s.biases + up(job->filters, 4);
  }
  s.units16 = up(s.units, 16);
  s.dense_biases = job->bright ? s.pixels * s.classes16 : s.dense + s.classes * s.units16;
  s.total = s.dense_biases + s.classes16;
  return s;
}

/* An image to be computed. */
typedef struct {
  const uint8_t *image;
  int64_t row; /* its number in the job, if the job has bright pixels */
  int32_t label;
  float weight;
} sample;

typedef struct {
  float *x;         /* CNN: an image of each of BLOCK as floats, [channel][row][column], with room for loads past the end */
  int64_t x_step;
  float *act;       /* [image][unit, padded] after ReLU; softmax regression: the pixels */
  int32_t *arg;     /* [image][unit]: position in the image that the pooled value comes from */
  float *back;      /* [image][unit, padded]: derivative of the loss by the unit, 0 where ReLU is 0 */
  int32_t *active_at; /* room for two filters' units above 0, and whole registers behind them */
  float *active_by;
  float *logits;    /* [image][class, padded] */
  sample queue[2 * BLOCK]; /* the images of the next two blocks; of the second, memory is fetched already */
  int count;
  double loss;
  int64_t correct;
  float pixel[256];
} scratch;

static void free_scratch(scratch *w) {
  if (!w) return;
  free(w->x); free(w->act); free(w->arg); free(w->back); free(w->active_at); free(w->active_by); free(w->logits); free(w);
}

static scratch *new_scratch(const truthfl_job *job, const shape *s) {
  scratch *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  for (int v = 0; v < 256; v++) w->pixel[v] = (float)v / 255.0f;
  int64_t units = (job->bright ? 0 : BLOCK * s->units16) + 64;
  int64_t active = 2 * up(s->pooled_h * s->pooled_w + 1, 16) + 16;
  w->x_step = job->filters ? s->pixels + 64 : 0;
  w->logits = calloc((size_t)(BLOCK * s->classes16), sizeof(float));
  w->act = calloc((size_t)units, sizeof(float));
  w->x = calloc((size_t)(BLOCK * w->x_step + 64), sizeof(float));
  if (job->filters) {
    w->arg = calloc((size_t)units, sizeof(int32_t));
    w->back = calloc((size_t)units, sizeof(float));
    w->active_at = calloc((size_t)active, sizeof(int32_t));
    w->active_by = calloc((size_t)active, sizeof(float));
  }
  int cnn = w->arg && w->back && w->active_at && w->active_by;
  if (!w->logits || !w->act || !w->x || (job->filters && !cnn)) {
    free_scratch(w);
    return NULL;
  }
  return w;
}
