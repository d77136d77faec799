"""Analysis: a federation before anything is trained."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, single_result, slug
from ...analysis.execution import Execution
from ...analysis.run_identity import identity
from ...analysis.runs import open_run
from ...analysis.settings import at_least
from ...checkpoints import FedscopeError, Run
from ...checkpoints.io.untrusted import is_there
from ...command_line import answering
from ...training.settings.own_code import OwnCode
from ...training.settings.registry import names
from .recorded import dataset_of, is_recorded
from .result import ClientData

if TYPE_CHECKING:
    from ...checkpoints import Partition
    from ...training import Config, Dataset
    from ...training.config.config import DataConfig

#: images have so many channels
COLOURS = (1, 3)
#: by so much rounding takes values out of 0 to 1
_ROUNDING = 1e-3


@analysis
def data(
    federation: Run | str | Path | Config | Mapping[str, Mapping[str, Any]] | None = None,
    *,
    data: Any = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    shown: int = 3,
    samples: int = 8,
) -> PreparedAnalysis[ClientData]:
    """Show a federation before anything is trained: who holds how many samples of which class and domain.

    Args:
        federation: a recorded run, or a configuration: a :class:`fedscope.Config`, a ``.toml`` file, or its tables, as
            in ``{"data": {"name": "digits", "partition": "shards:2", "clients": 20}}``, and all else that
            :func:`fedscope.train` takes; the defaults of ``train`` where nothing is given.
        data: the data, for ``settings={"data": ...}``.
        settings: tables laid over a configuration. Of a run its data alone, where they lie elsewhere now, or are your
            own code, as ``{"data": load}``, because no run says which code is run.
        shown: of how many clients a few samples are shown, the first, the last and those between.
        samples: how many of each.

    Raises:
        FedscopeError: data or a partition that there are not; ``settings`` for a run, whose data are what they are.

    >>> import fedscope
    >>> held = fedscope.data({"data": {"name": "digits", "partition": "shards:2", "clients": 20}})
    >>> held.counts.shape, int((held.counts > 0).sum(1).max())  # a client has four classes at most
    ((20, 10), 4)
    """
    at_least("shown", shown, 1)
    at_least("samples", samples, 1)
    settings = _by_section(_with_data(_by_section(settings or {}), data))
    run, given = _run(federation), None
    if run is not None and settings and (own := _data_alone(settings)) is not None:
        settings = {}  # compared with what the run saw
        if isinstance(own, OwnCode) and not is_recorded(run):
            from ...training.user_code.kept_source import playing

            run = playing(run, {"data": own}, changed=True, all_=False)[0]
        else:
            given = own
    if run is not None and settings:
        _refuse_beside(run, _others(settings))
    tables = {} if run is not None else _tables(federation, settings)
    told: Mapping[str, Any] = _told(run) if run is not None else tables.get("data", {})

    def prepare() -> SettingsAndCompute[ClientData]:
        if run is not None and is_recorded(run):
            return _prepare_recorded(run, given, shown, samples)
        dataset, split, how = _of_trained_run(run, given) if run is not None else _of_config(tables)
        known: dict[str, Any] = {
            **({"run": identity(run)} if run is not None else {}),
            **{"data": dataset.name, "data_sha256": dataset.sha256, "partition": how.partition, "seed": how.seed},
            **{"clients": len(split.clients), "client_test": how.client_test, "samples": len(dataset.y_train)},
            **{"shown": shown, "of_each": samples},
            **({} if run is not None else split_settings(split, how.partition)),
            **({"ignored": ignored} if (ignored := _ignored(dataset, split)) else {}),
            **shared_settings(split),
        }

        def compute(attrs: dict[str, Any], work: Execution) -> ClientData:
            return client_data(dataset, split, shown, samples, attrs)

        return known, compute

    name = slug(Path(str(told.get("name", "digits"))).stem)
    words = re.sub(r"[^\w.]+", "-", str(told.get("partition", "shards:2")))  # dirichlet-0.3
    folder = run.path / "figures" if run is not None else Path("figures")
    return single_result(ClientData, folder, f"data-{name}-{words}", prepare)


def _with_data(settings: Mapping[str, Any], data: Any) -> Mapping[str, Any]:
    """Return settings with the data in their table, whether they stand beside the settings or in its place.

    Raises:
        FedscopeError: both.
    """
    table = settings.get("data", {})
    if data is None:
        return {**settings, "data": {"name": table}} if isinstance(table, str) else settings
    if not isinstance(table, Mapping) or "name" in table:
        raise FedscopeError("data are given twice, as data= and in settings=; leave one of them out")
    return {**settings, "data": {**table, "name": data}}


def _by_section(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by their sections, of which single ones (``{"data.name": "digits"}``) count more; no empty
    tables."""
    tables = {name: value for name, value in settings.items() if "." not in str(name) and value != {}}
    for name, value in settings.items():
        section, dot, key = str(name).partition(".")
        if dot:
            table = tables.get(section, {})
            tables[section] = {**(table if isinstance(table, Mapping) else {"name": table}), key: value}
    return tables


#: settings that are options of the command
_FLAGS = {"data.clients": "--clients", "data.partition": "--partition"}


def _others(settings: Mapping[str, Any]) -> list[str]:
    """Name the settings other than where the data lie, as they were given."""
    places = [
        f"{section}.{key}" if key else section
        for section, table in settings.items()
        for key in (table if isinstance(table, Mapping) else [""])
    ]
    others = [place for place in places if place != "data.name"]
    return [_FLAGS.get(place, f"--set {place}") for place in others] if answering.get() else others


def _refuse_beside(run: Run, words: Sequence[str]) -> None:
    given = " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
    raise FedscopeError(f"{run.path} is a run, whose data are what they are; leave {given} out")


def refuse_assigned(federation: Any, flags: Sequence[str], assigned: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse settings beside a run, as a command line has them: by flags and by ``--set``.

    Raises:
        FedscopeError: names those that were typed.
    """
    places = [f"{section}.{key}" for section, table in assigned.items() for key in table]
    words = [*flags, *(f"--set {place}" for place in places if place != "data.name")]
    if words and (run := _run(federation)) is not None:
        _refuse_beside(run, words)


def _run(federation: Any) -> Run | None:
    """Return the run, where one is meant."""
    if isinstance(federation, Run):
        return federation
    if not isinstance(federation, str | Path):
        return None
    path = Path(federation)
    if path.suffix == ".toml" and not (is_there(path) and path.is_dir()):
        return None
    from ...training.config.data_meant import refuse_data

    refuse_data(federation, "neither a run nor a configuration")
    other = path.suffix in (".json", ".yaml", ".yml") and path.name != "run.json"
    if other and is_there(path) and path.is_file():
        raise FedscopeError(
            f"{federation} is neither a run nor a configuration; a run is a folder with a run.json, and a "
            "configuration a .toml file, with [data] and clients = 20 below it"
        )
    return open_run(federation, "")


def _prepare_recorded(run: Run, given: Any, shown: int, samples: int) -> SettingsAndCompute[ClientData]:
    """What a run of another program says of its federation: of how its partition came about it says nothing."""
    from ...training.build import partition_of

    split, dataset = partition_of(run), dataset_of(run, given)
    said = run.info.get("data", {})
    if dataset is not None:
        data = {"data": dataset.name, "data_sha256": dataset.sha256, "samples": len(dataset.y_train)}
    else:
        data = {"data": said["name"]} if "name" in said else {}
    clients = sum(len(rows) > 0 for rows in split.clients)  # numbers that nobody has are without rows
    known = {
        **{"run": identity(run), **data, "clients": clients or len(split.clients), "shown": shown, "of_each": samples},
        **shared_settings(split),
    }

    def compute(attrs: dict[str, Any], work: Execution) -> ClientData:
        if dataset is not None:
            return client_data(dataset, split, shown, samples, attrs)
        counts = split.label_counts.copy()
        return ClientData(counts, np.zeros_like(counts), np.empty(0, np.int64), attrs=attrs)

    return known, compute


def _told(run: Run) -> Mapping[str, Any]:
    """Return what a run says of its data, and how they were divided."""
    if is_recorded(run):
        return {"name": run.info.get("data", {}).get("name", "labels"), "partition": "recorded"}
    said: Mapping[str, Any] = (run.config or {}).get("data", {})
    return said


def _data_alone(settings: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return the data that settings give, where they give nothing else."""
    from ...training.user_code.typed import handed_tables

    given = handed_tables(settings)
    return given["data"].get("name") if set(given) == {"data"} and set(given["data"]) == {"name"} else None


def name_of(federation: Any, settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the data set that a run or a configuration names, for :func:`fedscope.download`."""
    run = _run(federation)
    if run is not None and is_recorded(run):
        own = _data_alone(settings) if settings else None
        return str(own if own is not None else run.info.get("data", {}).get("name", ""))
    tables = (run.config or {}) if run is not None else _tables(federation, settings)
    return str(tables.get("data", {}).get("name", "digits"))


def _tables(federation: Any, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """A configuration's tables with others laid over them."""
    from ...training.user_code.typed import handed_tables

    if isinstance(federation, str | Path):
        from ...training.config.config import merge, read_toml

        stored: Mapping[str, Mapping[str, Any]] = merge(read_toml(Path(federation)))
    else:
        from ...training.config.config import Config
        from ...training.config.from_python import nested_tables

        config = isinstance(federation, Config)
        stored = federation.asked() if config else nested_tables({} if federation is None else federation)
    given = handed_tables(settings)
    return {**stored, **{name: {**stored.get(name, {}), **table} for name, table in given.items()}}


def _of_trained_run(run: Run, given: Any) -> tuple[Dataset, Partition, DataConfig]:
    from ...training import config_of, data_of
    from ...training.build import partition_of
    from ...training.tasks import given_task

    config = config_of(run)
    named = config.model.architecture.task
    # by which of its labels are ignored; torch's own, and no code of the user's
    task = given_task(named) if named is not None and named.startswith("torch.nn:") else None
    return data_of(run, task, given), partition_of(run), config.data


def _of_config(tables: Mapping[str, Mapping[str, Any]]) -> tuple[Dataset, Partition, DataConfig]:
    from ...training import Config
    from ...training.build import data_to_train_on, split_dataset
    from ...training.tasks import resolve_task

    config, task = resolve_task(Config.read(tables), None)
    dataset = data_to_train_on(config.data.name, task)
    return *split_dataset(config, dataset), config.data.resolved()


def _ignored(dataset: Dataset, split: Partition) -> int:
    """Count the samples of clients, their test parts too, whose label a criterion ignores: they are of no class."""
    if not dataset.task.has_classes:
        return 0
    return sum(int((dataset.y_train[rows] < 0).sum()) for rows in (*split.clients, *(split.test or ())))


def client_data(dataset: Dataset, split: Partition, shown: int, samples: int, attrs: Mapping[str, Any]) -> ClientData:
    """Count the samples of a partition's clients; for the arguments see :func:`data`."""
    classes = split.label_counts.shape[1]
    tests = split.test or (np.empty(0, np.int64),) * len(split.clients)
    # without classes all samples are of one
    labels = dataset.y_train if dataset.task.has_classes else np.zeros(len(dataset.y_train), np.int64)
    # below 0 where a criterion ignores them
    test = np.stack([np.bincount(own[own >= 0], minlength=classes) for own in (labels[rows] for rows in tests)])
    domain = dataset.groups.get("domain")
    of: np.ndarray = np.empty(0, np.int64)
    names: tuple[str, ...] = ()
    if domain is not None:
        found = [np.unique(domain.train[rows]) for rows in split.clients]
        of, names = np.array([own[0] if len(own) == 1 else -1 for own in found]), domain.names
    holders = np.flatnonzero([len(rows) for rows in split.clients])  # recorded partitions may have clients without rows
    ids = np.unique(_some(holders, shown)) if len(holders) else holders
    images = np.empty((0, 0, 0, 0, 0), np.float32)
    if len(ids) and len(dataset.shape) == 3 and dataset.shape[0] in COLOURS:
        images = np.stack([_images(dataset, _some(split.clients[k], samples)) for k in ids])
    texts = tuple(_texts(dataset, _some(split.clients[k], samples)) for k in ids) if dataset.tokens else ()
    return ClientData(split.label_counts.copy(), test, of, names, tuple(map(int, ids)), images, texts, attrs)


def split_settings(split: Partition, name: str) -> dict[str, str]:
    """Describe the split that a partition makes which is not fedscope's, for a result's provenance: its code may change
    and keep its name."""
    if name.partition(":")[0] in names("partitions"):
        return {}
    digest = hashlib.sha256()
    for rows in (*split.clients, *(split.test or ())):
        digest.update(f"{len(rows)}:".encode())
        digest.update(np.ascontiguousarray(rows, "<i8").tobytes())
    return {"partition_sha256": digest.hexdigest()}


def shared_settings(split: Partition) -> dict[str, int]:
    """Count the samples that a partition names, each once, where it names some several times: ``distinct``; nothing
    elsewhere, where the clients' numbers say it.

    >>> from types import SimpleNamespace
    >>> shared_settings(SimpleNamespace(clients=(np.array([0, 1]), np.array([1, 2])), test=None))
    {'distinct': 3}
    """
    named = np.concatenate([*split.clients, *(split.test or ())])
    distinct = len(np.unique(named))
    return {"distinct": distinct} if distinct < len(named) else {}


def _some(rows: np.ndarray, count: int) -> np.ndarray:
    """So many of these numbers, as of a client's samples, evenly over them; fewer repeat."""
    some: np.ndarray = rows[np.linspace(0, len(rows) - 1, count).round().astype(int)]
    return some


def _texts(dataset: Dataset, rows: np.ndarray) -> tuple[str, ...]:
    """Return the texts of these samples."""
    return tuple("".join(dataset.tokens[token] for token in x) for x in np.asarray(dataset.x_train[rows]))


def _images(dataset: Dataset, rows: np.ndarray) -> np.ndarray:
    """These samples, as they were before they were standardised; of another scale than 0 to 1, from their least to
    their greatest value."""
    x = np.asarray(dataset.x_train[rows])
    if dataset.means:
        scale, middle = (np.array(values, np.float32)[:, None, None] for values in (dataset.deviations, dataset.means))
        x = x * scale + middle
    elif x.size and not -_ROUNDING <= x.min() <= x.max() <= 1 + _ROUNDING:  # in a scale of the user's own
        x = (x - x.min()) / (x.max() - x.min() or 1)
    shown: np.ndarray = np.clip(x, 0, 1).astype(np.float32)
    return shown
