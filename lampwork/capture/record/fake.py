"""Fakes under the name capture knows them by; they live in `lampwork.fakes`, which the graph stage uses too."""

import torch

from lampwork.fakes.fake import (
    DataDependent,
    Fake,
    FakeStorage,
    TensorSpec,
    Unsupported,
    describe,
    make_fake,
    make_fakes,
    shares_storage,
    spec_of,
)

#: Classes of tensors in a program under capture: fakes, and what function transforms (`torch.func`) wrap around them.
TENSOR_KINDS = frozenset({Fake, torch.Tensor})

__all__ = [
    "DataDependent", "Fake", "FakeStorage", "TensorSpec", "Unsupported", "describe", "make_fake", "make_fakes",
    "TENSOR_KINDS", "shares_storage", "spec_of",
]  # fmt: skip
