"""The rules of cuDNN for recurrent layers, kept on the pretend device."""

from __future__ import annotations

from typing import Any

from .native import NAME
from .watch import _heard


def keep_cudnn_rules() -> None:
    """Let recurrent layers on the device refuse what cuDNN refuses."""
    import torch

    class Refusing(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, *tensors: Any) -> Any:
            return tuple(tensor.view_as(tensor) for tensor in tensors)

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            raise RuntimeError("cudnn RNN backward can only be called in training mode")

    def wrapped(layer: Any) -> Any:
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            found = layer(self, *args, **kwargs)
            output, state = found
            one = output.data if isinstance(output, torch.nn.utils.rnn.PackedSequence) else output
            if one.device.type != NAME or not torch.backends.cudnn.enabled or one.dtype is torch.bfloat16:
                return found
            weights = list(self._flat_weights)
            storages = {weight.untyped_storage().data_ptr() for weight in weights}
            if len(storages) > 1:
                _heard("remark", "recurrent weights are no single block: cuDNN compacts them at every call", 0)
            if not self.training and one.requires_grad and not isinstance(output, torch.nn.utils.rnn.PackedSequence):
                states = state if isinstance(state, tuple) else (state,)
                output, *states = Refusing.apply(output, *states)
                return output, tuple(states) if isinstance(state, tuple) else states[0]
            return found

        return forward

    for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        kind.forward = wrapped(kind.forward)  # type: ignore[method-assign]
