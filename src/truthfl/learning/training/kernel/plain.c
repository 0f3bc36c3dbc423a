/* The kernel for any machine: x86-64's baseline, ARM's NEON. */
#define TARGET(name) truthfl_plain_##name
#include "body.h"
