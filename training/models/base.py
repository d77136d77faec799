"""The interface of the models in ``models/architectures/``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...checkpoints import FedscopeError
from ...checkpoints.io.warn_user import warn_user
from ...evaluation.image_axes import MOVED, has_channels_last
from ..settings.registry import method_name
from ..settings.settings import Settings, setting

if TYPE_CHECKING:
    from torch import nn

    from ..data.dataset import Dataset


@dataclass(frozen=True)
class Architecture(Settings):
    """An architecture's own settings; :meth:`build` makes the module."""

    section: ClassVar[str] = "model"
    #: a sample's shape and the number of classes for which its parameters are counted in ``docs/methods.md``
    counted: ClassVar[tuple[tuple[int, ...], int]] = ((1, 8, 8), 10)

    head: str | None = setting(None, "name of the head in the module, if it is not the last linear layer")
    task: str | None = setting(
        None,
        "the task: regression, sequences, sequence-classification or your own module:factory; default classification, "
        "for shakespeare sequences",
    )

    weights: str | None = setting(
        None, "file with the model to start from (.pt, .pth, .ckpt, .bin, .safetensors, .npz), or FILE:KEY"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task is not None:
            from ..tasks import refuse_unknown_task

            refuse_unknown_task(self.task, "model.task")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A freshly initialised module for samples of ``shape`` (without the batch) and ``classes`` outputs.

        Raises:
            FedscopeError: samples of a shape that the architecture does not take.
        """
        raise NotImplementedError

    def refuse_samples(self, data: Dataset) -> None:
        """Refuse samples that the module would fail on, though their shape is right.

        Raises:
            FedscopeError: names the value and the remedy.
        """


@dataclass(frozen=True)
class GroupNormed(Architecture):
    """An architecture whose layers are normalised over groups of a sample's own channels (GroupNorm).

    It keeps no statistics, so what averages and planes do with those of BatchNorm does not concern it.
    """

    groups: int = setting(2, "groups of channels in every GroupNorm", least=1)

    def norm(self, channels: int) -> nn.GroupNorm:
        """A layer for so many channels.

        Raises:
            FedscopeError: groups that do not divide them.
        """
        from torch import nn

        if channels % self.groups:
            raise FedscopeError(
                f"model.groups = {self.groups} does not divide the {channels} channels of a layer of "
                f"{method_name(self)}; give --set model.groups=2"
            )
        return nn.GroupNorm(self.groups, channels)


def image_shape(architecture: Architecture, shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    """Channels, height and width of a sample.

    Args:
        least: pixels that a side needs.

    Raises:
        FedscopeError: no image, a smaller one, or one with its channels last.
    """
    if has_channels_last(shape) and min(shape[1:]) < least:
        raise FedscopeError(
            f"model.name = {method_name(architecture)!r} needs images [c, h, w], but a sample has shape {list(shape)}, "
            f"its channels last; give {MOVED}, or use --model mlp"
        )
    if has_channels_last(shape) and shape[0] == shape[1]:
        warn_user(
            f"model.name = {method_name(architecture)!r} reads samples of shape {list(shape)} as {shape[0]} channels "
            f"of {shape[1]} x {shape[2]} pixels; if their channels are last, give {MOVED}"
        )
    if len(shape) == 2:
        raise FedscopeError(
            f"model.name = {method_name(architecture)!r} needs images [c, h, w], but a sample has shape {list(shape)}; "
            "give x[:, None] if these are grey images, or use --model mlp"
        )
    if len(shape) != 3 or min(shape[1:]) < least:
        raise FedscopeError(
            f"model.name = {method_name(architecture)!r} needs images of at least {least} x {least} pixels, but a "
            f"sample has shape {list(shape)}; {'enlarge the images, or ' if len(shape) == 3 else ''}use --model mlp"
        )
    depth, height, width = shape
    return depth, height, width
