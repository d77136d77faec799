"""Hooks on the gradients of a module's parameters, which its copies have, too, but for some."""

from __future__ import annotations

from torch import nn

from ...checkpoints import FedscopeError


def refuse_hooks(module: nn.Module, model: str, *, cluster: bool) -> None:
    """Refuse hooks that would be lost, before anybody trains: those that run once a gradient is there and may put
    something else in its place, and on a cluster all, because torch sends none.

    Raises:
        FedscopeError: names the first such parameter.
    """
    for name, parameter in module.named_parameters():
        if getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise FedscopeError(
                f"{model}: {name} has a hook that register_post_accumulate_grad_hook made, which training cannot keep; "
                "change gradients with register_hook"
            )
        if cluster and parameter._backward_hooks:
            raise FedscopeError(
                f"{model}: {name} has a hook on its gradient (register_hook), which does not reach a cluster's "
                "workers; train without --engine"
            )
