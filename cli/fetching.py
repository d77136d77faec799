"""``--download``: fetch what is missing, and say it."""

from __future__ import annotations

from .printing import say


def fetch(name: str) -> None:
    """Fetch the files of a data set that are not there yet, with progress in megabytes.

    Raises:
        FedscopeError: what :func:`~fedscope.training.data.formats.download.download` refuses.
    """
    from ..training.data.formats.download import download
    from .progress import progress

    with progress(f"{name}, MB") as report:
        fetched = download(name, report)
    for path in fetched:
        say(f"fedscope: fetched {path}", err=True)
