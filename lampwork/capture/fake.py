"""Fakes under the name capture knows them by; they live in `lampwork.fakes`, which the graph stage uses too."""

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

__all__ = [
    "DataDependent", "Fake", "FakeStorage", "TensorSpec", "Unsupported", "describe", "make_fake", "make_fakes",
    "shares_storage", "spec_of",
]  # fmt: skip
