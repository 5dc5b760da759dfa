#!/usr/bin/env bash
# usage: sampler_program_test.sh PROGRAM CLOSURE
set -euo pipefail
program=$1 closure=$2

fail() {
  echo "$1" >&2
  exit 1
}

# Padded with its own beginning, as PyTorch's DistributedSampler does.
expected=$'rank 0: 0 2 4\nrank 1: 1 3 0'
printed=$("./$program")
[[ $printed == "$expected" ]] || fail "expected: $expected"$'\n'"printed: $printed"

grep -q '^@medfusion//medfusion/sampler:' "$closure" || fail "the query says nothing about the sampler"
if grep -E '^@medfusion//medfusion/distributed|^@libtorch//' "$closure"; then
  fail "the sampler's target needs the above, which it must not"
fi
if ldd "$program" | grep -E 'libtorch|libc10|libgloo'; then
  fail "the program links the above, which it must not"
fi
