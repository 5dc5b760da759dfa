"""What PyTorch's DistributedSampler gives, as tables for reference_test.cc and large_permutation_test.cc.

Made with torch 2.11.0 on the CPU:
  python make_reference.py > reference.inc
  python make_reference.py --large > large_reference.inc        # needs 4 GB of memory
"""

import random
import sys

import numpy as np
import torch
from torch.utils.data import DistributedSampler

CASES = [
    # size, replicas, seed, epoch, shuffle, drop_last
    (0, 1, 0, 0, True, False),
    (0, 4, 0, 0, True, True),
    (1, 1, 0, 0, True, False),
    (1, 3, 5, 2, True, False),
    (3, 7, 0, 0, True, False),  # more replicas than samples: repeated more than once
    (3, 7, 0, 0, True, True),  # nothing is left
    (3, 7, 0, 0, False, False),
    (2, 9, 0, 1, True, False),
    (10, 3, 0, 0, False, False),
    (10, 3, 0, 0, False, True),
    (10, 3, 0, 4, True, False),
    (10, 3, 0, 4, True, True),
    (12, 4, 7, 0, True, True),
    (569, 2, 0, 0, True, False),
    (569, 2, 0, 1, True, False),
    (569, 4, 123, 9, True, True),
    (1000, 8, 2**31 - 1, 1, True, False),
    (1000, 8, 2**31, 0, True, False),
    (1000, 8, 2**32 - 1, 0, True, False),
    (1000, 8, 2**32 - 1, 1, True, False),  # the sum passes 32 bits
    (1000, 8, 2**32 + 17, 3, True, False),
    (1000, 8, 2**53 + 5, 3, True, False),
    (1000, 8, 2**63 - 1, 0, True, False),
    (1000, 8, -1, 0, True, False),
    (1000, 8, -(2**40) - 3, 2, True, False),
    (1000, 8, -5, 12, True, False),
    (100003, 8, 0, 0, True, False),
    (100003, 8, 0, 1, True, True),
    (100003, 7, 2**35 + 1, 2, True, False),
]


def digest(indices, first=0):
    """The sum over all places of a mix (splitmix64's) of place and index, modulo 2^64."""
    with np.errstate(over="ignore"):
        places = np.arange(first, first + len(indices), dtype=np.uint64)
        x = np.asarray(indices, dtype=np.uint64) + (places << np.uint64(32))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return int((x ^ (x >> np.uint64(31))).sum(dtype=np.uint64))


def numbers(values):
    return "{" + ", ".join(map(str, values)) + "}"


def large():
    """Both sides of the size at which torch.randperm takes another algorithm."""
    print(f"// Made by make_reference.py --large with torch {torch.__version__.split('+')[0]}.")
    print("// size, seed, digest, head, tail")
    for size in ((2**32 - 1) // 20 - 1, (2**32 - 1) // 20):
        order = torch.randperm(size, generator=torch.Generator().manual_seed(3)).numpy()
        block = 1 << 24
        total = sum(digest(order[b : b + block], b) for b in range(0, size, block)) % 2**64
        print(f"{{{size}, 3, {total}u, {numbers(order[:4].tolist())}, {numbers(order[-3:].tolist())}}},")


def row(size, replicas, rank, seed, epoch, shuffle, drop_last):
    sampler = DistributedSampler(range(size), replicas, rank, shuffle, seed, drop_last)
    sampler.set_epoch(epoch)
    indices = list(sampler)
    assert len(indices) == len(sampler)
    boolean = lambda value: str(value).lower()
    return (
        f"{{{size}, {replicas}, {rank}, {seed}, {epoch}, {boolean(shuffle)}, {boolean(drop_last)}, "
        f"{len(indices)}, {digest(indices)}u, {numbers(indices[:4])}, {numbers(indices[-3:])}}},"
    )


def main():
    print(f"// Made by make_reference.py with torch {torch.__version__.split('+')[0]}.")
    print("// size, num_replicas, rank, seed, epoch, shuffle, drop_last, length, digest, head, tail")
    dice = random.Random(20)
    cases = list(CASES)
    for _ in range(60):
        size, replicas = dice.choice([dice.randrange(1, 40), dice.randrange(1, 3000)]), dice.randrange(1, 20)
        cases.append((size, replicas, dice.randrange(-(2**34), 2**34), dice.randrange(100),
                      dice.random() < 0.8, dice.random() < 0.4))
    for size, replicas, *rest in cases:
        for rank in sorted({0, replicas // 2, replicas - 1}):
            print(row(size, replicas, rank, *rest))


if __name__ == "__main__":
    large() if "--large" in sys.argv[1:] else main()
