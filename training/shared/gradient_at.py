"""A mini-batch's gradient at another model than the one that trains: what control variates on the same batch need."""

from __future__ import annotations

import torch
from torch import Tensor

from ..bench import Objective, Workbench


def gradient_at(bench: Workbench, objective: Objective, w: Tensor, x: Tensor, y: Tensor, weight_decay: float) -> Tensor:
    """The gradient of the objective on a batch at the model ``w`` [P], weight decay included, [P].

    The bench's model and buffers are left as they were, bit for bit, and so are its dropout masks: the batch's next
    pass meets the same ones, so that two gradients of a batch differ by their models alone. ``g`` is overwritten.
    """
    state = bench.module.state_dict()
    before = {entry.name: state[entry.name].clone() for entry in bench.layout.buffers}
    here = bench.w.clone()
    place = bench.place_in_masks()
    bench.w.copy_(w)
    try:
        bench.decayed(objective, x, y, weight_decay)
    finally:
        bench.w.copy_(here)
        with torch.no_grad():
            for name, values in before.items():
                state[name].copy_(values)
        bench.return_in_masks(place)
    return bench.g.clone()
