/* Random draws, the same as learning/training/draws.py. */
enum { BATCH = 1, AVAILABILITY = 4 };
#define GOLDEN 0x9E3779B97F4A7C15ull

INLINE uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
INLINE uint64_t purpose_key(uint64_t seed, uint64_t purpose) { return mix(seed + GOLDEN * purpose); }
INLINE uint64_t with(uint64_t key, uint64_t counter) { return mix(key ^ (counter + GOLDEN)); }
INLINE uint64_t draw(uint64_t key, uint64_t position) { return mix(key + GOLDEN * (position + 1)); }

static int is_available(const truthfl_job *job, int64_t client, int64_t round) {
  if (job->available[client] >= 1.0) return 1;
  uint64_t key = with(with(purpose_key(job->seed, AVAILABILITY), (uint64_t)client), (uint64_t)round);
  return (double)(draw(key, 0) >> 11) * 0x1p-53 < job->available[client];
}
