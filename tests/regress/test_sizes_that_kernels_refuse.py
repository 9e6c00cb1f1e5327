"""Calls that only eager's kernels refuse raise as eager does, where sizes vary, too; nothing is read outside of a tensor."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

aten = torch.ops.aten

#: A program, sizes of its arguments that fit, and some that do not.
PROGRAMS = {
    "weights of a convolution": (lambda x, w, b: F.conv2d(x, w, b), ((2, 3, 6, 6), (4, 3, 3, 3), (4,)), ((2, 3, 6, 6), (0, 3, 3, 3), (4,))),
    "bias of a convolution": (lambda x, w, b: F.conv2d(x, w, b), ((2, 3, 6, 6), (4, 3, 3, 3), (4,)), ((2, 3, 6, 6), (4, 3, 3, 3), (1,))),
    "no channels": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), ((2, 3, 4, 4),), ((2, 0, 4, 4),)),
    "baddbmm": (lambda x, a, b: torch.baddbmm(x, a, b), ((2, 3, 4), (2, 3, 5), (2, 5, 4)), ((2, 3, 4), (2, 0, 5), (2, 5, 4))),
    "addmm_": (lambda x, a, b: x.clone().addmm_(a, b), ((3, 4), (3, 5), (5, 4)), ((3, 4), (3, 5), (6, 4))),
    "addr_": (lambda x, a, b: x.clone().addr_(a, b), ((3, 4), (3,), (4,)), ((3, 4), (3,), (5,))),
    "group norm": (lambda x: aten.native_group_norm(x, None, None, 2, x.shape[1], 4, 2, 1e-5)[0], ((2, 6, 4),), ((2, 6, 7),)),
    "softmax backward": (lambda g, y: aten._softmax_backward_data(g, y, 0, torch.float32), ((5, 3), (5, 3)), ((5, 3), (4, 3))),
    "slice backward": (lambda g: aten.slice_backward(g, [6, 4], 0, 1, 5, 1), ((4, 4),), ((3, 4),)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_refused(name, dynamic):
    program, fits, others = PROGRAMS[name]
    for order in ((fits, others), (others, fits)):
        compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
        for shapes in order:
            arguments = [torch.randn(shape) for shape in shapes]
            try:
                expected = program(*arguments)
            except RuntimeError as error:
                with pytest.raises(type(error)):
                    compiled(*arguments)
            else:
                torch.testing.assert_close(compiled(*arguments), expected)
