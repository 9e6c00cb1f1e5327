"""A back end that runs kernels by the interpreter of the loop IR: what another back end has to bring, and nothing else.

It takes the CPU's place: tensors of another device would need a build of PyTorch that has it.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from lampwork.backends.cpu import CPU
from lampwork.runtime.launch import cpu as launching
from tests.backends.toy.generate import generate
from tests.backends.toy.launch import load

TOY = replace(CPU, generate=generate, launch=SimpleNamespace(**{**vars(launching), "load": load}))
