/* Several threads that train one run together: in each round they take chunks of clients until none is left; the last one
   to finish adds the chunks' updates to the model, in order. So the result does not depend on the number of threads. */
#define SPINS 4000 /* looks at the round's number before a thread goes to sleep: some tens of microseconds */

typedef struct {
  const truthfl_job *job;
  shape s;
  float *p, *before, *update; /* the model; that before the last round, or NULL; the chunks' updates, `step` floats apart */
  int64_t step, first, last, chunks;
  const int64_t *bounds;
  int64_t size;                 /* number of threads */
  _Atomic int64_t next, busy;   /* the next chunk; threads that still compute chunks of this round */
  _Atomic int64_t round;        /* the round that may be computed; before all threads are there, first − 1 */
  _Atomic int failed;           /* a thread has got no memory */
  pthread_mutex_t lock;
  pthread_cond_t changed;
} team;

INLINE void pause_thread(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void begin_round(team *all, int64_t round) {
  atomic_store(&all->next, 0);
  atomic_store(&all->busy, all->size);
  pthread_mutex_lock(&all->lock);
  atomic_store(&all->round, round);
  pthread_cond_broadcast(&all->changed);
  pthread_mutex_unlock(&all->lock);
}

static void await_round(team *all, int64_t round) {
  for (int k = 0; k < SPINS; k++) {
    if (atomic_load(&all->round) >= round) return;
    pause_thread();
  }
  pthread_mutex_lock(&all->lock);
  while (atomic_load(&all->round) < round) pthread_cond_wait(&all->changed, &all->lock);
  pthread_mutex_unlock(&all->lock);
}

/* What each thread does. */
static void *take_part(void *of) {
  team *all = of;
  const shape *s = &all->s;
  scratch *w = new_scratch(all->job, s);
  float *local = malloc((size_t)(2 * all->step) * sizeof(float));
  if (!w || !local) atomic_store(&all->failed, 1);
  for (int64_t t = all->first; t < all->last; t++) {
    await_round(all, t);
    for (int64_t k; w && local && (k = atomic_fetch_add(&all->next, 1)) < all->chunks;)
      chunk(all->job, s, all->p, t, all->bounds[k], all->bounds[k + 1], w, local, local + all->step,
            all->update + k * all->step);
    if (atomic_fetch_sub(&all->busy, 1) > 1) continue;
    if (!atomic_load(&all->failed)) combine(all->job, s, all->p, all->before, all->update, all->chunks, all->step);
    begin_round(all, t + 1);
  }
  free_scratch(w);
  free(local);
  return NULL;
}

/* The model and the updates are in memory of their own, in which rows of sixteen classes do not cross cache lines. */
static int run_team(const truthfl_job *job, float *inner, float *before, int64_t first, int64_t last,
                    const int64_t *bounds, int64_t chunks, int64_t threads) {
  team all;
  memset(&all, 0, sizeof all);
  all.job = job;
  all.s = shape_of(job);
  all.before = before;
  all.step = up(all.s.total + 1, LINE);
  all.first = first;
  all.last = last;
  all.bounds = bounds;
  all.chunks = chunks;
  if (threads > chunks) threads = chunks;
  float *memory = calloc((size_t)((1 + chunks) * all.step + LINE), sizeof(float));
  pthread_t *others = calloc((size_t)threads, sizeof(pthread_t));
  if (!memory || !others) { free(memory); free(others); return -1; }
  all.p = (float *)(((uintptr_t)memory + 4 * LINE - 1) & ~(uintptr_t)(4 * LINE - 1));
  all.update = all.p + all.step;
  memcpy(all.p, inner, (size_t)all.s.total * sizeof(float));
  pthread_mutex_init(&all.lock, NULL);
  pthread_cond_init(&all.changed, NULL);
  atomic_store(&all.round, first - 1);
  int64_t started = 0; /* besides this thread; a system that allows no more gets the same result later */
  while (started + 1 < threads && !pthread_create(others + started, NULL, take_part, &all)) started++;
  all.size = started + 1;
  begin_round(&all, first);
  take_part(&all);
  for (int64_t k = 0; k < started; k++) pthread_join(others[k], NULL);
  pthread_mutex_destroy(&all.lock);
  pthread_cond_destroy(&all.changed);
  memcpy(inner, all.p, (size_t)all.s.total * sizeof(float));
  free(memory);
  free(others);
  return atomic_load(&all.failed) ? -1 : 0;
}
