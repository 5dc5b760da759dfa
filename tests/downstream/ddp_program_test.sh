#!/usr/bin/env bash
# usage: ddp_program_test.sh PROGRAM
set -euo pipefail
program=$1
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$port WORLD_SIZE=2 OMP_NUM_THREADS=1

RANK=1 timeout 50 "./$program" >"$TEST_TMPDIR/rank1" &
RANK=0 timeout 50 "./$program" >"$TEST_TMPDIR/rank0"
wait $!
printed=$(cat "$TEST_TMPDIR/rank0" "$TEST_TMPDIR/rank1")
expected=$'rank 0 of 2: gradient 1.5\nrank 1 of 2: gradient 1.5'
if [[ $printed != "$expected" ]]; then
  echo "expected: $expected"$'\n'"printed: $printed" >&2
  exit 1
fi
