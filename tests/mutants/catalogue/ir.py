"""Faults of size arithmetic."""

from tests.mutants.fault import Fault

FAULTS = (
    Fault(
        "bounds-of-negative-factors", "ir/size.py",
        "            low += k * (atom_low if k > 0 else atom_high)\n", "            low += k * atom_low\n",
        "the lower bound of a difference is too high",
    ),
    Fault(
        "remainder-of-negative", "ir/size.py",
        "return 0, min(divisor_high - 1, high) if low >= 0 else divisor_high - 1", "return 0, min(divisor_high - 1, high)",
        "the remainder of a negative number is bounded by the number",
    ),
    Fault(
        "quotient-drops-rest", "ir/size.py",
        "            if 0 <= low and high < common:\n                return add(quotient, floordiv(multiple, divisor // common))\n",
        "            if 0 <= low:\n                return add(quotient, floordiv(multiple, divisor // common))\n",
        "a quotient drops a rest that is larger than the common factor",
    ),
    Fault(
        "nested-quotients", "ir/size.py",
        "floordiv(rest.value, rest.divisor * divisor))", "floordiv(rest.value, rest.divisor + divisor))",
        "a quotient of a quotient divides by the sum",
    ),
    Fault(
        "remainder-loses-small-part", "ir/size.py",
        "return add(mul(mod(multiple, divisor // common), common), remainder)", "return mul(mod(multiple, divisor // common), common)",
        "a remainder drops what is below the common factor",
    ),
    Fault(
        "small-over-large-is-zero", "ir/size.py",
        "    if 0 <= low and high < bounds(divisor)[0]:\n        return 0\n", "    if 0 <= low and high < bounds(divisor)[1]:\n        return 0\n",
        "a quotient is 0 where it may be more",
    ),
    Fault(
        "quotient-and-rest-joined", "ir/size.py",
        "terms.get(quotient) != k * rest.divisor:", "terms.get(quotient) != k:",
        "x // d + x % d counts as x",
    ),
    Fault(
        "minimum-bound", "ir/size.py",
        "return min(left_low, right_low), min(left_high, right_high, half)", "return max(left_low, right_low), min(left_high, right_high, half)",
        "a minimum is bounded below by the larger side",
    ),
)  # fmt: skip
