"""Import of other programs' files: models, of which a run is made, and surfaces, which become planes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, single_result, slug
from ...checkpoints import FedscopeError, Run, expand_home, npz_names, regular
from ...checkpoints.io.keywords import speak_keywords
from ...checkpoints.io.shell_words import command_line
from ...checkpoints.io.untrusted import at_home
from ...checkpoints.io.warn_user import warn_user
from .. import Plane
from ..alignment.step import refuse_unknown_align

if TYPE_CHECKING:
    from ...checkpoints.recorder.read_files import NamedArchitecture
    from .network_of_files import NetworkOfFiles


@speak_keywords
def import_models(
    files: Path | str | Sequence[Path | str],
    out: Path | str,
    *,
    start: Path | str | None = None,
    global_: Path | str | None = None,
    samples: Path | str | Sequence[int] | Mapping[int, int] | None = None,
    model: Any = None,
    data: str | None = None,
    standardise: bool | None = None,
    method: str | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    lora_alpha: float | None = None,
    base: Path | str | None = None,
    align: str = "none",
    server: Any = None,
    server_settings: Mapping[str, Any] | Sequence[str] = (),
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Run:
    """Make a run of model files, so that every question that needs only models can be asked of them.

    Files alone are one round, its clients numbered from 0 in this order. In a pattern, ``{round}`` and ``{client}``
    stand for whole numbers: clients keep theirs, rounds become 1 to T. Models are kept in their precision, two rounds
    of them in memory at most. What is changed or supplied is a :class:`~fedscope.checkpoints.FedscopeWarning`.

    Args:
        files: ``.pt``, ``.pth``, ``.ckpt``, ``.bin``, ``.safetensors`` or Flower's ``.npz``, and ``FILE:KEY`` for one
            of several models in a file; folders of one model, as ``save_pretrained`` writes them; a folder of models,
            in natural order; or a pattern, ``ckpt/round-{round}/client-{client}.pt``.
        out: the new run's folder.
        start: the model that the clients began from: a file, of the first round; or a pattern with ``{round}``. A round
            without one begins at the global model of the round before, if the files have that round.
        global_: the model that was made of the clients, alike; by default their mean Σ p_k w_k, in float64 and rounded
            once, whole numbers being those of the client with the largest p, or what ``server`` makes of them.
        samples: n_k in the order of the clients; by the client's number, as a mapping or a Series of pandas; or a
            ``.csv`` with columns ``client``, ``samples`` and, where they differ, ``round``. By number they are refused
            where the files' names count clients otherwise than their order, which a pattern mends; and all that differ
            beside a list which is sorted as text, ``client-10`` before ``client-2``. p_k is n_k over their sum. Without
            them all weigh the same.
        model: the architecture, so that questions need no ``model=``: a name, ``module:factory``, ``hf:FOLDER``, or a
            module. One of fedscope's names is looked at only where ``data`` are given, which say its shape.
        data: the data set's name, so that questions need no ``data=``.
        standardise: whether the models were trained on samples standardised by the training split, where ``data`` are
            not; see :class:`~fedscope.Recorder`.
        method, seed, settings: what made the models, as of :class:`~fedscope.Recorder`.
        lora_alpha: of LoRA adapters the α that scales their products by α/r, where no ``adapter_config.json`` stands
            beside their files.
        base: of adapters the weights that they adapt, so that questions need no ``base=``; as of
            :class:`~fedscope.Recorder`.
        align: bring the units of a round's clients into the order of the model that they were sent, or without it of
            the first of them, by their ``weights`` or their ``activations``; see :func:`fedscope.align`. It needs
            ``model`` and ``data``, and no ``global_``, which was made of the clients as they are.
        server: a server method that makes the global models: a name, as ``ties``, your own as ``module:Class``, a
            class, or an object of one. The first round begins with an empty state, and each further one with the state
            and, where no file says another start, at the model of the round before. Servers that compare models or
            look at what they do (``greedy``, ``fisher``, ``regmean``) need ``model`` and ``data``.
        server_settings: of that server, ``{"density": 0.2}`` or ``["server.density=0.2"]``.
        force: replace a run that is there.
        progress: told how many files are read, of how many.

    Returns:
        The run.

    Raises:
        FedscopeError: no files, or none of a pattern; what is no model; models that do not go together, with what
            differs; a client twice, a round without clients, counts of samples that fit no clients; a server that needs
            a start where there is none, or counts local steps or all clients; a list that is sorted as text beside a
            server that takes its order as time; something is in the way at ``out``. Of several rounds those before the
            mistake are kept.

    >>> import tempfile, warnings, fedscope, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # that global is the mean
    ...     for k in range(3):
    ...         np.savez(f"{folder}/{k}.npz", weight=np.float32([k, 1]))
    ...     run = fedscope.import_models([f"{folder}/{k}.npz" for k in range(3)], f"{folder}/soup")
    ...     run.round(1).client_ids, run.round(1).read("global").parameters
    (array([0, 1, 2]), array([1., 1.], dtype=float32))
    """
    from ...checkpoints.recorder.file_order import refuse_order_of_text
    from ...checkpoints.recorder.inputs import named_method
    from ...checkpoints.recorder.match_files import find_files
    from ...checkpoints.recorder.record_files import record_files

    named = named_method(method, seed, settings)
    refuse_unknown_align(align)
    if isinstance(files, Set | Mapping):
        raise FedscopeError(
            f"files= is a {type(files).__name__}, by which clients cannot be numbered; give a list, or a pattern with "
            "{client}"
        )
    given = [str(file) for file in ([files] if isinstance(files, str | Path) else files)]
    if surface := next(filter(is_surface, given), None):
        raise FedscopeError(
            f"{surface} is a surface, not a model; `{command_line('import', surface)}` draws it by itself, and "
            "--start, --global, --samples, --model and --data are for models"
        )
    out = expand_home(out)
    found = find_files(
        list(map(at_home, given)), *(None if one is None else at_home(str(one)) for one in (start, global_))
    )
    first = next(iter(found.rounds[0].clients.values()))
    architecture = _architecture(model, data, first, base)

    def network(option: str, why: tuple[str, str]) -> NetworkOfFiles:
        from .network_of_files import network_of_files

        return network_of_files(first, option, why, model=model, data=data, standardise=standardise, base=base)

    served = None
    if server is not None or server_settings:
        from .served_files import served_files

        expected = None if architecture is None else architecture.expected
        served = served_files(server, server_settings, expected, network, out, global_=global_)
        if served is not None and served.in_time:
            refuse_order_of_text(found.order, f"--server {served.name}")
    aligned = None
    if align != "none":
        from .aligned_files import aligned_files

        aligned = aligned_files(align, network, global_=global_)
    notes = record_files(
        found,
        out,
        architecture=architecture,
        samples=samples,
        model=model if isinstance(model, str) else None,
        data=data,
        standardise=standardise,
        named=named,
        lora_alpha=lora_alpha,
        base=base,
        aligned=aligned,
        served=served,
        force=force,
        progress=progress,
    )
    for note in notes:
        warn_user(note)
    return Run.open(out)


def _architecture(model: Any, data: str | None, first: Path, base: Path | str | None) -> NamedArchitecture | None:
    """Return the architecture that the models should have; None where that is not known.

    Args:
        first: of their files.
        base: of adapters, as it was given.

    Raises:
        FedscopeError: no such architecture; no such data; adapters of a base that was not given, or another base's.
    """
    if data is not None and not isinstance(data, str):
        raise FedscopeError(
            f"data was given as {type(data).__name__}, but a run keeps their name; give digits, npz:PATH"
        )
    if model is None:
        return None
    from ...checkpoints.models.wrappers import unwrap
    from ...checkpoints.recorder.coerce_models import coerce_model, model_made
    from ...checkpoints.recorder.read_files import NamedArchitecture
    from ...training import given_task, load_data, model_settings
    from ...training.inputs.base import base_named, is_implied, with_base
    from ...training.inputs.models import shapes_in
    from ...training.inputs.samples import given_module
    from ...training.models.pretrained import PretrainedFolder, converted_tensors, is_pretrained, task_of_folder

    given = base_named(model, base)

    def named(name: str, module: Any) -> NamedArchitecture:
        if hasattr(module, "state_dict"):  # of adapters the base is no part of any model
            module = with_base(unwrap(module), shapes_in(first), given, str(first), implied=is_implied(base))
        return NamedArchitecture(name, coerce_model(module, codes=True), converted_tensors)

    if not isinstance(model, str):
        made = model_made(model)
        return named(type(made).__name__, made)
    settings = model_settings(model)
    if data is not None:
        task = given_task(task_of_folder(model, base)) if is_pretrained(model) else None
        return named(f"--model {model}", given_module(model, load_data(data, task), shapes_in(first), given))
    if isinstance(settings, PretrainedFolder) and given is not None and Path(given).is_dir():
        settings = replace(settings, base=str(given))
    own = ":" in model  # which needs no shape of samples
    return named(f"--model {model}", settings.build((), 0)) if own else None


@analysis
def import_surface(file: Path | str, *, split: str | None = None) -> PreparedAnalysis[Plane]:
    """A surface that another program has computed, as a plane; points that were not computed (-1) become holes.

    Args:
        file: the ``.h5`` of tomgoldstein's loss-landscape, or the ``plane.npz`` of dnn-mode-connectivity.
        split: ``train`` or ``test``; by default the only one with values, of both ``test`` of an ``.h5`` and ``train``
            of a ``plane.npz``.

    Raises:
        FedscopeError: no such file, or no such losses in it.
    """
    file = Path(file)

    def prepare() -> SettingsAndCompute[Plane]:
        plane = _read(file, split)
        # the content, for a file that was moved holds the same surface
        content = regular(file, "a surface").read_bytes()
        settings = {"split": plane.attrs["split"], "file_sha256": sha256(content).hexdigest()}
        return settings, lambda attrs, work: replace(plane, attrs={**plane.attrs, **attrs})

    return single_result(Plane, Path("figures"), f"import-{slug(file.name)}", prepare)


def is_surface(file: Path | str) -> bool:
    """Tell whether a file is a surface rather than a model: an ``.h5``, or an ``.npz`` with a grid in it.

    >>> is_surface("surface.h5"), is_surface("model.safetensors")
    (True, False)
    """
    path = Path(file)
    match path.suffix.lower():
        case ".h5" | ".hdf5":
            return True
        case ".npz":
            return path.is_file() and "grid" in npz_names(path)
        case _:
            return False


def _read(file: Path, split: str | None) -> Plane:
    from .. import read_plane, read_surface

    match file.suffix.lower():
        case ".h5" | ".hdf5":
            return read_surface(file, split)
        case ".npz":
            return read_plane(file, split)
        case ".pt" | ".pth" | ".ckpt" | ".bin" | ".safetensors":
            raise FedscopeError(
                f"{file} is a model, which needs no import: give it to `fedscope plane` or `fedscope line` with "
                "--model and --data; of several models --out runs/NAME makes a run"
            )
        case ".nc":
            raise FedscopeError(f"{file} is a result already; the command that made it draws it again with --redraw")
        case _:
            raise FedscopeError(
                f"{file} is not a file that can be imported: the .h5 of loss-landscape, the plane.npz of "
                "dnn-mode-connectivity"
            )
