"""The operation "random": what every back end's version of it must compute.

Philox2x32 with ten rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011): a
bijection of a 64-bit counter that a 32-bit key chooses. The counter is half the number, with the upper half of the key
folded into its own: numbers 2k and 2k + 1 are the two words of one counter, so that neighbours can share the work.
"""

from __future__ import annotations

from typing import Any

MULTIPLIER, KEY_STEP, ROUNDS = 0xD256D193, 0x9E3779B9, 10
_WORD = 0xFFFFFFFF


def random_bits(key: Any, number: Any) -> Any:
    """32 bits, as an unsigned number in the operands' own type: Python integers, or numpy arrays of int64."""
    counter = number >> 1
    word, low, high = key & _WORD, counter & _WORD, ((counter >> 32) ^ (key >> 32)) & _WORD
    for _ in range(ROUNDS):
        product = low * MULTIPLIER  # of an array it wraps: its bits are right
        low, high = ((product >> 32) ^ word ^ high) & _WORD, product & _WORD
        word = (word + KEY_STEP) & _WORD
    return low + (high - low) * (number & 1)
