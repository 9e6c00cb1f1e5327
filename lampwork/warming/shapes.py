"""Arguments of calls in words: `float32[8,128]` is a tensor of that type and these sizes.

float32[8,128]            on the CPU, all zeros: valid indices, and valid numbers of every type
int64[8]@cuda             on a device
mask=bool[8,128]          a keyword
scale=2.5, None, "text"   other arguments, as Python writes them
"""

from __future__ import annotations

import ast
import re
from typing import Any

import torch

_TENSOR = re.compile(r"(\w+)\[\s*((?:\d+\s*(?:,\s*\d+\s*)*)?)\](?:@([a-z]+(?::\d+)?))?")
_KEYWORD = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
#: A word of a command line: white space inside of brackets and quotes is part of it.
_WORD = re.compile(r"(?:\[[^\]]*\]|\([^)]*\)|\{[^}]*\}|'[^']*'|\"[^\"]*\"|[^\s\[({'\"])+")


def tensor(text: str) -> torch.Tensor | None:
    """The tensor that `text` describes; None where it describes none. Raises ValueError for an unknown type."""
    match = _TENSOR.fullmatch(text.strip())
    if match is None:
        return None
    name, sizes, device = match.groups()
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{text}: torch has no type {name!r}; write float32, bfloat16, int64, bool, ...")
    shape = [int(each) for each in sizes.split(",")] if sizes.strip() else []
    try:
        with torch.inference_mode(False):  # the program's inputs are plain tensors, whatever mode it runs in
            return torch.zeros(shape, dtype=dtype, device=device or "cpu")
    except RuntimeError as error:
        raise ValueError(f"{text}: {str(error).splitlines()[0]}") from error


def made(value: Any) -> Any:
    """`value` with tensors in place of the texts in it that describe some; other texts stay."""
    if type(value) is str:
        described = tensor(value) if _TENSOR.fullmatch(value.strip()) else None
        return value if described is None else described
    if type(value) in (tuple, list):
        return type(value)(made(each) for each in value)
    if type(value) is dict:
        return {key: made(each) for key, each in value.items()}
    return value


def call(text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments in a line such as `float32[1,128] int64[1,128] scale=2`, still in words where they are tensors.

    Raises ValueError for what is neither a tensor nor a value as Python writes it.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in _WORD.findall(text):
        keyword = _KEYWORD.fullmatch(word)
        value = _argument(keyword.group(2) if keyword else word)
        if keyword:
            kwargs[keyword.group(1)] = value
        else:
            args.append(value)
    return tuple(args), kwargs


def _argument(word: str) -> Any:
    if _TENSOR.fullmatch(word):
        tensor(word)  # what is wrong with it is told now
        return word
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"{word}: write a tensor as float32[8,128], other values as Python does") from error


def words(value: Any) -> str:
    """`value` in the form that this file reads, short enough to be shown."""
    if isinstance(value, torch.Tensor):
        device = "" if value.device.type == "cpu" else f"@{value.device}"
        return f"{str(value.dtype).removeprefix('torch.')}[{','.join(map(str, value.shape))}]{device}"
    if type(value) is tuple and len(value) == 2 and type(value[0]) is tuple and type(value[1]) is dict:
        return " ".join((*map(words, value[0]), *(f"{name}={words(each)}" for name, each in value[1].items())))
    if type(value) in (tuple, list):
        return f"({', '.join(map(words, value))})"
    if type(value) is dict:
        return f"{{{', '.join(f'{key!r}: {words(each)}' for key, each in value.items())}}}"
    if type(value) is str and _TENSOR.fullmatch(value.strip()):
        return value.strip()
    return f"{value!r:.60}"
