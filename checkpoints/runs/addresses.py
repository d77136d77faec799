"""Addresses: one model named in one word, ``RUN@ROUND[/WHICH]`` or the path of a file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from ..io.errors import FedscopeError, list_few, nearest, rounds_have
from ..io.keywords import speak_keywords
from ..io.untrusted import at_home, real_path
from ..io.visible_text import visible
from ..io.warn_user import warn_user
from ..models.expected import ExpectedModel
from ..models.files import SUFFIXES, file_and_key, is_file_name, is_model_folder, read_model
from ..models.folders import INDEX, model_names
from ..models.weights import Layout, Weights, mean
from ..rounds.round import Round
from ..rounds.writer import MODELS
from .run import Run, has_no_server

_FORMS = "start, global, averaged, client-17 or mean(3,8,11)"


@dataclass(frozen=True)
class Address:
    """A parsed address.

    Attributes:
        path: of the run, the file or the folder of one model, as given.
        round: its number, negative from the end, or ``"last"``; None for a file.
        which: ``start``, ``global``, ``averaged``, ``client``, ``mean``, or None for what a user would deploy.
        clients: of ``client`` and ``mean``.
        key: of one of several models in a file, ``FILE:KEY``; "" otherwise.
    """

    path: str
    round: int | Literal["last"] | None = None
    which: str | None = None
    clients: tuple[int, ...] = ()
    key: str = ""


@dataclass(frozen=True, eq=False)
class Model:
    """An addressed model.

    Attributes:
        label: short, for figures: ``ima@40``, ``ima@40/client-17``.
        address: as given.
        run, round, which: where it stands in a run, ``last`` and the deployed model resolved; None for a file.
        loss, error: its test values as the run recorded them, None where it did not.
        note: what was changed when a file was read (names, dtypes), "" where nothing was.
    """

    label: str
    address: str
    weights: Weights
    run: Run | None = None
    round: int | None = None
    which: str | None = None
    loss: float | None = None
    error: float | None = None
    note: str = ""


def parse_address(address: str) -> Address:
    """Read ``RUN@ROUND[/WHICH]``, a file's path, a model's folder or ``FILE:KEY``; nothing is opened.

    Raises:
        FedscopeError: neither; says what is missing or which word was meant.

    >>> parse_address("runs/ima@40/mean(3,8,11)")
    Address(path='runs/ima', round=40, which='mean', clients=(3, 8, 11), key='')
    >>> parse_address("runs/ima@last").which is None
    True
    """
    address = at_home(address)
    file, key = file_and_key(address)
    if is_file_name(file) or is_model_folder(file):
        return Address(file, key=key)
    path, at, rest = address.rpartition("@")
    if not at:
        if (Path(address) / "run.json").is_file():
            raise FedscopeError(f"{address} is a run; name one of its models, as in {address}@last")
        if Path(file).is_file():  # its content says what it is
            return Address(file, key=key)
        if near := _near(Path(address)):
            raise FedscopeError(f"{address} does not exist{near}")
        raise FedscopeError(
            f"{address} is not an address of a model; give RUN@ROUND[/WHICH], as in runs/ima@last, "
            f"or a file ({', '.join(SUFFIXES)}){_inside(Path(address))}"
        )
    number, slash, which = rest.partition("/")
    if not path or (number != "last" and not re.fullmatch(r"-?[0-9]+", number)):
        raise FedscopeError(f"{address}: {number!r} is not a round; give RUN@40, RUN@last, or RUN@-1 from the end")
    parsed = Address(path, "last" if number == "last" else int(number))
    if parsed.round == 0:
        raise FedscopeError(f"{address}: rounds count from 1; the model that round 1 starts from is {path}@1/start")
    if not slash:
        return parsed
    if which in MODELS:
        return replace(parsed, which=which)
    if client := re.fullmatch(r"client-([0-9]+)", which):
        return replace(parsed, which="client", clients=(int(client[1]),))
    if members := re.fullmatch(r"mean\(\s*([0-9]+(?:\s*,\s*[0-9]+)*)\s*\)", which):
        ids = tuple(int(word) for word in members[1].split(","))
        if len(set(ids)) < len(ids):
            raise FedscopeError(f"{address} names a client twice; its mean is unweighted, so name each once")
        return replace(parsed, which="mean", clients=ids)
    hint = nearest(which, (*MODELS, "client-", "mean()"))
    raise FedscopeError(f"{address}: {which!r} is not a model of a round{hint}{',' if hint else ';'} give {_FORMS}")


def _near(path: Path) -> str:
    """Offer the run or the model's file whose name is nearest to one that does not exist."""
    if path.exists() or not path.parent.is_dir():
        return ""
    there = [one for one in path.parent.iterdir() if one.suffix in SUFFIXES or (one / "run.json").is_file()]
    names = {one.name: one.name for one in there} | {one.stem: one.name for one in there if one.suffix in SUFFIXES}
    return nearest(path.name, names, {typed: str(path.with_name(name)) for typed, name in names.items()})


def _inside(folder: Path) -> str:
    """Name the models in a folder, where it is not one model's."""
    if not folder.is_dir():
        return ""
    if runs := sorted(one.name for one in folder.iterdir() if (one / "run.json").is_file()):
        return f"; {folder} holds the runs {list_few(runs, 4)}"
    names = model_names(folder, SUFFIXES)
    return f"; {folder} holds {list_few(names, 4)}" if names else f"; {folder} is a folder without one"


def file_label(address: str) -> str:
    """Shorten the name of a model's file or folder.

    >>> file_label("nets/best.pt"), file_label("nets/ckpt.pt:teacher")
    ('best', 'ckpt:teacher')
    """
    file, key = file_and_key(address)
    path = Path(file)
    name = (
        real_path(path).name if path.is_dir() else path.name.removesuffix(INDEX) if file.endswith(INDEX) else path.stem
    )
    return visible(f"{name}:{key}" if key else name)


def distinct_labels(labels: Sequence[str], files: Sequence[str]) -> list[str]:
    """Labels of models, those of files that share one with the folder that the file lies in, or the next one above it
    in which they differ.

    Args:
        files: address of each model that is a file's, "" of the others.

    >>> distinct_labels(["model", "model", "ima@3"], ["hf0/model.safetensors", "hf1/model.safetensors", ""])
    ['hf0', 'hf1', 'ima@3']
    >>> distinct_labels(["model", "model"], ["seed0/ckpt/model.pt", "seed1/ckpt/model.pt"])
    ['seed0', 'seed1']
    """
    shared = {label for label in labels if labels.count(label) > 1}
    if not any(file and label in shared for label, file in zip(labels, files, strict=True)):
        return list(labels)

    folders = [real_path(Path(file_and_key(file)[0])).parent.parts[1:] if file else () for file in files]
    for name in _namings(folders):
        named = [
            visible(name(label, folder)) if file and label in shared else label
            for label, file, folder in zip(labels, files, folders, strict=True)
        ]
        if len(set(named)) == len({*zip(labels, files, strict=True)}) and "" not in named:
            return named
    return list(labels)


def _namings(folders: Sequence[tuple[str, ...]]) -> Iterator[Callable[[str, tuple[str, ...]], str]]:
    """Ways to name a file by its label and the folders above it, the plainest first: the folder that it lies in, that
    folder and the label, then those above; and as much of its path as it takes."""
    deepest = max(map(len, folders))
    for up in range(1, deepest + 1):
        yield partial(_named, up=up, many=1, with_label=False)
        yield partial(_named, up=up, many=1, with_label=True)
    for up in range(2, deepest + 1):
        yield partial(_named, up=up, many=up, with_label=False)
        yield partial(_named, up=up, many=up, with_label=True)


def _named(label: str, folder: tuple[str, ...], *, up: int, many: int, with_label: bool) -> str:
    """Join so many folders from one so far up, and the label."""
    start = max(len(folder) - up, 0)
    return "/".join((*folder[start : max(len(folder) - up + many, 0)], *([label] if with_label else [])))


@partial(speak_keywords, called={"model": "layout"})
def load_model(address: Path | str, layout: Layout | ExpectedModel | None = None) -> Model:
    """Load the model that an address names.

    Args:
        layout: of the expected model, for files that hold no names (Flower's ``.npz``); others are checked against it,
            and a file's names and dtypes are made its own, which a warning says. An
            :class:`~fedscope.checkpoints.models.expected.ExpectedModel` knows tied tensors and constants besides.

    Raises:
        FedscopeError: what cannot be found is refused with what there is; what cannot be read, with the reason; a model
            in memory.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> model = fedscope.load_model(f"{run.path}@2/global")
    >>> model.label, model.weights.parameters.shape
    ('run@2/global', (17226,))
    >>> folder.cleanup()
    """
    return read_address(address, layout)


def read_address(address: Path | str, layout: Layout | ExpectedModel | None = None) -> Model:
    """Load a model as :func:`load_model`, whose sentences go to whoever asked for it: another question."""
    address = at_home(str(address))
    parsed = parse_address(address)
    if parsed.round is None:
        weights, note = read_model(address, layout)
        if note:
            warn_user(f"{address}: {note}")
        return Model(file_label(address), address, weights, note=note)
    run = Run.open(parsed.path)
    round_ = run.round(parsed.round)
    which = parsed.which or ("averaged" if "averaged" in round_.models else "global")
    weights = _weights(address, run, round_, which, parsed.clients)
    expected = layout.layout if isinstance(layout, ExpectedModel) else layout
    if expected is not None and (difference := run.layout.difference(expected)):
        raise FedscopeError(f"{address} does not fit the expected model: {difference}")
    name = _name(which, parsed.clients)
    label = f"{run.name}@{round_.number}" + (f"/{name}" if parsed.which else "")
    prefix = {"global": "test", "averaged": "averaged_test"}.get(which)
    loss = _recorded_metric(round_, f"{prefix}_loss") if prefix else None
    error = _recorded_metric(round_, f"{prefix}_error") if prefix else None
    return Model(label, address, weights, run, round_.number, name, loss, error)


def _weights(address: str, run: Run, round_: Round, which: str, clients: tuple[int, ...]) -> Weights:
    if which in ("client", "mean"):
        if not round_.has_clients and not round_.has_sample:
            have = [t for t in run.rounds if run.round(t).has_clients]
            where = rounds_have(have, "them") if have else "no round of this run has them"
            raise FedscopeError(f"{address}: round {round_.number} recorded no clients; {where}")
        return round_.client(clients[0]) if which == "client" else mean(round_.clients(clients))
    if which not in round_.models:
        have = [t for t in run.rounds if which in run.round(t).models]
        where = rounds_have(have, "it") if have else "no round of this run has it"
        if not have and has_no_server(run):
            ids = round_.client_ids.tolist() if round_.has_clients else round_.sampled_ids.tolist()
            every = f", or the mean of all: {run.path}@{round_.number}/mean({','.join(map(str, ids))})"
            one = f"; name a client, as {run.path}@{round_.number}/client-{ids[0]}" if ids else ""
            where += f", for its clients start from models of their own{one}"
            where += every if round_.has_clients and len(ids) <= 16 else ""
        kept = ["clients"] if round_.has_clients else ["a sample of the clients"] if round_.has_sample else []
        there = ", ".join([*round_.models, *kept]) or "no model"
        raise FedscopeError(f"{round_.label}/{which}: round {round_.number} recorded {there}, not {which}; {where}")
    return round_.read(which)


def _name(which: str, clients: tuple[int, ...]) -> str:
    match which:
        case "client":
            return f"client-{clients[0]}"
        case "mean":
            return f"mean({','.join(map(str, clients))})"
    return which


def _recorded_metric(round_: Round, name: str) -> float | None:
    value = round_.metrics.get(name)
    return None if value is None or math.isnan(value) else float(value)
