"""Files of a list or a folder that became clients, and are copies of one model, or a model of the server's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from xxhash import xxh3_128

from ..io.errors import list_few
from .coerce_models import ModelTensors
from .file_order import name_apart
from .match_files import CheckpointFiles

#: models with copies, that are named at most
_NAMED = 3
#: words by which models of a server are called
_SERVERS = frozenset({"global", "server"})
#: types in which a mean is told from what was trained; others round too much
_EXACT = ("float32", "float64")


class FoundCopies:
    """What is remarkable of the files of a round, noted while they are read.

    Of the files of a pattern, whose names say that they are clients, nothing is.

    Args:
        files: of one round where they are of no pattern.
    """

    def __init__(self, files: CheckpointFiles) -> None:
        own = files.rounds[0]
        self._clients = {} if files.numbered else dict(own.clients)
        self._known = {"--start": own.start, "--global": own.global_}
        self._common, self._odd = unlike_the_others(list(self._clients.values()))
        self._sums: dict[Path, str] = {}
        self._mean: int | None = None

    def read(self, path: Path, model: ModelTensors) -> None:
        """Keep the sum of a model that was read."""
        if self._clients:
            self._sums[path] = sum_of(model)

    def averaged(self, clients: Mapping[int, ModelTensors], mean: ModelTensors) -> None:
        """Look whether a client that is called unlike the others is their mean: then the mean of all is it, too."""
        if len(clients) > 2:
            odd = (k for k, path in self._clients.items() if path in self._odd)
            self._mean = next((k for k in odd if _is_mean(k, clients, mean)), None)

    def sentences(self) -> list[str]:
        """Say which clients are copies of each other, and which seem to be models of the server's."""
        if not self._sums:  # of a pattern's files
            return []
        copies = self._copies()
        said = [
            f"{list_few(own, 4)} hold the same weights, so one model counts as {len(own)} clients; {self._remedy(own)}"
            for own in copies[:_NAMED]
        ]
        if more := len(copies) - len(said):
            said.append(f"{more} more model{'s have' if more > 1 else ' has'} copies among the clients")
        told = {path for own in copies for path in own}
        odd = {k: path for k, path in self._clients.items() if path in self._odd and path not in told}
        return [*said, *self._about_odd(odd)]

    def _copies(self) -> list[list[Path]]:
        """Return the clients' files of the same weights.

        A client that holds the model that was sent was not trained; so may be all that are called alike, where it is
        not known what was sent.
        """
        alike: dict[str, list[Path]] = {}
        for path in self._clients.values():
            alike.setdefault(self._sums[path], []).append(path)
        sent = self._known["--start"]
        if sent is not None:
            alike.pop(self._sums[sent], None)
        elif len(alike) == 1 and len({name_apart(path)[0] for path in self._clients.values()}) == 1:
            return []
        return [own for own in alike.values() if len(own) > 1]

    def _remedy(self, copies: Sequence[Path]) -> str:
        """Say what to do with copies: those that are called alike may be of clients that did not train."""
        may_be_sent = self._known["--start"] is None and len({name_apart(path)[0] for path in copies}) == 1
        return "keep one, or give --start if it is the model that was sent" if may_be_sent else "keep one of them"

    def _about_odd(self, odd: Mapping[int, Path]) -> list[str]:
        said, called = [], {}
        for k, path in odd.items():
            known = [
                f"{what} {own}" for what, own in self._known.items() if own and self._sums[own] == self._sums[path]
            ]
            if known:
                said.append(f"{path} holds the weights of {known[0]}, and is client {k} besides; leave it out")
            elif (_words(path) - self._common) & _SERVERS:
                called[k] = path
            elif k == self._mean:
                said.append(
                    f"{path} is client {k}, and the mean of the others; if the server made it, give it as --global"
                )
        if called:
            many = len(called) > 1
            said.append(
                f"{list_few(called.values(), 4)} {'are clients' if many else 'is client'} "
                f"{list_few(called, 4)}, called as a server's model is; if it is one, give it as --global or --start"
            )
        return said


def unlike_the_others(paths: Sequence[Path]) -> tuple[set[str], set[Path]]:
    """Return the words in the names of most files, which are called alike but for numbers, and the other files; none
    where fewer than half are.

    >>> common, odd = unlike_the_others([Path(f"ck/client_{k}.pt") for k in range(3)] + [Path("ck/global.pt")])
    >>> sorted(common), odd == {Path("ck/global.pt")}
    (['ck', 'client', 'pt'], True)
    """
    alike = Counter(name_apart(path)[0] for path in paths)
    words, count = alike.most_common(1)[0] if alike else ((), 0)
    if count < 2 or 2 * count <= len(paths):
        return set(), set()
    return _words(" ".join(words)), {path for path in paths if name_apart(path)[0] != words}


def sum_of(model: ModelTensors) -> str:
    """Return the XXH3 of a model's names, types, shapes and numbers, 128 bits."""
    running = xxh3_128()
    for name in sorted(model.arrays):
        array = np.ascontiguousarray(model.arrays[name])
        running.update(f"{name} {model.dtypes[name]} {array.shape}".encode())
        running.update(array.reshape(-1).view(np.uint8).data)
    return running.hexdigest()


def _words(text: Path | str) -> set[str]:
    return set(re.findall("[a-z]+", str(text).lower()))


def _is_mean(k: int, clients: Mapping[int, ModelTensors], mean: ModelTensors) -> bool:
    """Tell whether a client is the mean up to rounding, which ends at the first tensor that is not."""
    own, looked_at = clients[k], False
    for name, dtype in own.dtypes.items():
        if "float" not in dtype or not own.arrays[name].size:
            continue
        if dtype not in _EXACT:
            return False
        with np.errstate(invalid="ignore", over="ignore"):  # of models that have diverged
            off = np.abs(own.arrays[name] - mean.arrays[name]).max()
        largest = max(np.abs(one.arrays[name]).max() for one in clients.values())
        if not off <= len(clients) * np.finfo(dtype).eps * largest:
            return False
        looked_at = True
    return looked_at
