"""A picture of a surface while it is being measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ....checkpoints import FedscopeError
from ....checkpoints.io.errors import DiskFullError
from ....checkpoints.io.safe_write import refuse_strange
from ....checkpoints.io.warn_user import warn_user

if TYPE_CHECKING:
    from ..result import Plane

#: seconds before the first picture, and between two; drawing takes a tenth of the time at most
EVERY = 5.0
SHARE = 0.1


class Preview:
    """Draws ``BASE.preview.png`` now and then.

    A file that cannot be written is said once, and the analysis goes on.
    """

    def __init__(self, base: Path) -> None:
        self.path = Path(f"{base}.preview.png")
        self._next = time.monotonic() + EVERY
        self._drawn: tuple[int, ...] = ()

    def __call__(self, so_far: Callable[[], Plane | None]) -> None:
        """Draw what there is, where it is time and more than last time."""
        began = time.monotonic()
        if began < self._next:
            return
        self._next = began + EVERY
        plane = so_far()
        if plane is None or plane.loss.shape == self._drawn:
            return
        try:
            self._draw(plane)
        except DiskFullError:
            raise
        except (OSError, FedscopeError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error).removeprefix(f"{self.path} ")
            self._next = float("inf")
            warn_user(f"{self.path} cannot be written ({why}), so there is no preview; going on without")
            return
        self._drawn = plane.loss.shape
        now = time.monotonic()
        self._next = now + max(EVERY, (now - began) / SHARE)

    def _draw(self, plane: Plane) -> None:
        from ....plotting.style import save_figure

        rows, columns = plane.loss.shape
        figure = plane.figure(3.5, f"preview, {columns} x {rows} of {plane.attrs['grid']} points")
        save_figure(figure, str(self.path).removesuffix(".png"), ["png"])


@contextmanager
def preview_of(base: Path | None) -> Iterator[Preview | None]:
    """Yield a preview next to ``base``, which is removed once the block has succeeded; None where there is no base."""
    if base is None:
        yield None
        return
    preview = Preview(base)
    yield preview
    with suppress(OSError, FedscopeError):  # what is in the way is not ours
        refuse_strange(preview.path, "a picture", replaced=True)
        preview.path.unlink()
