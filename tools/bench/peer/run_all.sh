#!/usr/bin/env bash
# Runs every peer baseline with a Python that has PyTorch and NumPy; JSON lines go to OUT.  Usage: run_all.sh PYTHON OUT [part...]
# Parts: floor train overhead coll ckpt sampler launch (all when none is named). About 15 minutes on 2 cores.
set -u
cd "$(dirname "$0")"
py=$1 out=$2
shift 2
parts=${*:-floor train overhead coll ckpt sampler launch}
export OMP_NUM_THREADS=1
mkdir -p "$out"
tr() { local n=$1; shift; timeout 300 "$py" -m torch.distributed.run --standalone --nproc-per-node "$n" "$@" 2>>"$out/stderr.txt" | grep '^{'; }
train() { # world, strategy, then flags
  local n=$1 s=$2; shift 2
  if [ "$s" = single ]; then timeout 300 "$py" peer_train.py --strategy single "$@" --t0 "$(date +%s.%N)" 2>>"$out/stderr.txt" | grep '^{'
  else tr "$n" peer_train.py --strategy "$s" "$@" --t0 "$(date +%s.%N)"; fi
}
for part in $parts; do
  case $part in
    floor) "$py" peer_floor.py ;;
    overhead) # one rank: what the wrappers cost without communication, also with the fused optimizer
      for s in single ddp fsdp1 fsdp2; do
        for rep in 1 2; do train 1 $s --model mlp_small --batch 32 --steps 300 --warmup 20 --losses 10; done
        # torch 2.11 has no fused SGD for FSDP2's DTensor
        [ $s = fsdp2 ] || train 1 $s --model mlp_small --batch 32 --steps 300 --warmup 20 --losses 10 --fused
      done ;;
    train)
      for rep in 1 2 3; do for s in single ddp fsdp1 fsdp2; do train 2 $s --model mlp_small --batch 32 --steps 300 --warmup 20 --losses 10; done; done
      for s in single ddp fsdp1 fsdp2; do
        train 2 $s --model mlp_small --batch 32 --steps 300 --warmup 20 --losses 10 --optim adamw
        train 2 $s --model mlp_big --batch 64 --steps 16 --optim sgd
        train 2 $s --model mlp_big --batch 64 --steps 16 --optim adamw
        train 2 $s --model transformer --batch 4 --steps 12 --optim adamw
      done
      train 1 single --model mlp_big --batch 64 --steps 16 --optim adamw --fused
      train 2 ddp --model mlp_big --batch 64 --steps 16 --optim adamw --fused
      train 2 fsdp2 --model mlp_big --batch 64 --steps 16 --optim adamw --fused ;;
    coll)
      for n in 2 4; do tr $n peer_collectives.py; "$py" peer_collectives.py --spawn $n; done ;;
    ckpt)
      for how in full dcp async; do tr 2 peer_ckpt.py --how $how --dir "$out/ckpt"; tr 2 peer_ckpt.py --how $how --dir "$out/ckpt" --sync; done ;;
    sampler) for n in 1000000 10000000; do "$py" peer_sampler.py --n $n; done ;;
    launch) for n in 2 4; do "$py" peer_launch.py --world $n --repeats 4; done ;;
  esac >"$out/$part.jsonl" 2>>"$out/stderr.txt"
done
rm -rf "$out/ckpt"
