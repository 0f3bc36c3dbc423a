#!/usr/bin/env bash
# Builds the kernel with AddressSanitizer and UndefinedBehaviorSanitizer and runs every kind of call on it, on shapes
# that leave no room: odd sizes, one sample, one client, one pixel more than a register.
# usage: scripts/sanitize_kernel.sh [CC]
set -euo pipefail
cd "$(dirname "$0")/.."
cc=${1:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kernel=src/truthfl/learning/training/kernel
flags=(-O1 -g -std=gnu11 -Wno-psabi -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -pthread)
"$cc" "${flags[@]}" -I "$kernel" -o "$work/exercise" \
  "$kernel/plain.c" "$kernel/avx2.c" "$kernel/avx512.c" "$kernel/choose.c" scripts/exercise_kernel.c -lm
"$work/exercise"
