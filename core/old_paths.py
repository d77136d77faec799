"""Old dotted paths of modules that have moved, which stay importable for one version.

``import fedscope.training.building`` gives :mod:`fedscope.training.build`, with a ``DeprecationWarning`` that names it.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # as in typing, which takes half of what importing fedscope does
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

#: packages, old and new place below ``fedscope``; what lies in them moves with them
PACKAGES = {
    "questions": "analysis",
    "asking": "analysis",
    "checkpoints.results": "results",
    "decomposition.cohort": "decomposition.draws",
    "landscape.cluster": "distributed",
    "landscape.drawing": "plotting",
    "landscape.evaluation": "evaluation",
    "training.averages": "training.methods.averages",
    "training.clients": "training.methods.clients",
    "training.data": "training.data.published",
    "training.launching": "training.jobs",
    "training.layouts": "training.data.formats",
    "training.models": "training.models.architectures",
    "training.partitions": "training.data.partitions",
    "training.servers": "training.methods.servers",
    "training.shared": "training.methods.shared",
    "training.windows": "decomposition.windows",
}
#: modules
MODULES = {
    "asking.blocks": "training.jobs.blocks",
    "asking.decomposing": "decomposition.factors.run",
    "asking.given_draws": "decomposition.draws.sources",
    "asking.given_models": "training.inputs.models",
    "asking.given_planes": "landscape.planes.inputs",
    "asking.given_runs": "analysis.runs",
    "asking.given_samples": "training.inputs.samples",
    "asking.loop_over_rounds": "analysis.execution",
    "asking.measured_on": "analysis.settings",
    "asking.own_outputs": "training.inputs.model_outputs",
    "asking.question": "analysis.analysis",
    "asking.recorded_data": "training.inputs.recorded_data",
    "asking.recorded_error": "training.inputs.recorded_error",
    "checkpoints.addresses": "checkpoints.runs.addresses",
    "checkpoints.archives": "checkpoints.io.archives",
    "checkpoints.array_sums": "checkpoints.io.array_digest",
    "checkpoints.background": "checkpoints.io.background",
    "checkpoints.checksums": "checkpoints.io.checksums",
    "checkpoints.errors": "checkpoints.io.errors",
    "checkpoints.durable": "checkpoints.io.atomic",
    "checkpoints.foreign_files": "checkpoints.io.untrusted",
    "checkpoints.hdf5": "checkpoints.io.hdf5",
    "checkpoints.hdf5_gate": "checkpoints.io.hdf5_validation",
    "checkpoints.kept_rounds": "checkpoints.rounds.retention",
    "checkpoints.locks": "checkpoints.io.locks",
    "checkpoints.metrics": "checkpoints.rounds.metrics",
    "checkpoints.model_files": "checkpoints.models.files",
    "checkpoints.models.fitting": "checkpoints.models.match_names",
    "checkpoints.models.pickled_numbers": "checkpoints.io.pickled_numbers",
    "checkpoints.own_files": "checkpoints.io.safe_write",
    "checkpoints.partition": "checkpoints.runs.partition",
    "checkpoints.processes": "checkpoints.io.processes",
    "checkpoints.recorded_error": "checkpoints.runs.recorded_error",
    "checkpoints.recorded_rows": "checkpoints.rounds.disk_matrix",
    "checkpoints.recorder.checkpoint_files": "checkpoints.recorder.match_files",
    "checkpoints.recorder.file_reader": "checkpoints.recorder.read_files",
    "checkpoints.recorder.flower": "checkpoints.recorder.flower.recording",
    "checkpoints.recorder.flower.evaluation": "checkpoints.recorder.framework_evaluation",
    "checkpoints.recorder.flower_mod": "checkpoints.recorder.flower.replies",
    "checkpoints.recorder.flower_replies": "checkpoints.recorder.flower.replies",
    "checkpoints.recorder.flower_strategies": "checkpoints.recorder.flower.strategies",
    "checkpoints.recorder.flower_watch": "checkpoints.recorder.flower.watch",
    "checkpoints.recorder.given_arrays": "checkpoints.recorder.coerce_arrays",
    "checkpoints.recorder.given_models": "checkpoints.recorder.coerce_models",
    "checkpoints.recorder.keeping": "checkpoints.recorder.retention",
    "checkpoints.recorder.kept_data": "checkpoints.recorder.stored_data",
    "checkpoints.recorder.named_data": "checkpoints.recorder.inputs",
    "checkpoints.recorder.named_method": "checkpoints.recorder.inputs",
    "checkpoints.recorder.round_image": "checkpoints.recorder.in_memory_round",
    "checkpoints.recorder.sample_counts": "checkpoints.recorder.inputs",
    "checkpoints.recorder.server_check": "checkpoints.recorder.identify_server",
    "checkpoints.results.result": "results.base",
    "checkpoints.results.unfinished": "results.resume",
    "checkpoints.round_checks": "checkpoints.rounds.verify",
    "checkpoints.round_columns": "checkpoints.rounds.columns",
    "checkpoints.round_head": "checkpoints.rounds.metadata",
    "checkpoints.round_models": "checkpoints.rounds.models",
    "checkpoints.round_reading": "checkpoints.rounds.reader",
    "checkpoints.round_writing": "checkpoints.rounds.writer",
    "checkpoints.rounds": "checkpoints.rounds.round",
    "checkpoints.rows_on_disk": "checkpoints.rounds.disk_matrix",
    "checkpoints.run_folders": "checkpoints.runs.folders",
    "checkpoints.run_identity": "checkpoints.rounds.run_identity",
    "checkpoints.run_info": "checkpoints.runs.info",
    "checkpoints.run_writer": "checkpoints.runs.writer",
    "checkpoints.runs": "checkpoints.runs.run",
    "checkpoints.sampled_clients": "checkpoints.rounds.retention",
    "checkpoints.sketches": "checkpoints.rounds.sketches",
    "checkpoints.state_dicts": "checkpoints.models.state_dicts",
    "checkpoints.visible_text": "checkpoints.io.visible_text",
    "checkpoints.weights": "checkpoints.models.weights",
    "cli.answering": "cli.run_analysis",
    "cli.differences": "cli.settings_diff",
    "cli.fetching": "cli.progress",
    "decomposition.cohort.draws": "decomposition.draws.cohort_draws",
    "decomposition.cohort.membership": "training.data.membership",
    "decomposition.dispersion.dispersing": "decomposition.dispersion.dispersion",
    "decomposition.explanation.beside_factors": "decomposition.explanation.context_measures",
    "decomposition.explanation.greatest_factor": "decomposition.explanation.dominant_factor",
    "decomposition.forgetting.counting": "decomposition.forgetting.accuracy",
    "decomposition.matrix.sure": "decomposition.matrix.significance",
    "decomposition.parameters.choosing": "decomposition.parameters.selection",
    "decomposition.synergy.micro_classes": "training.methods.shared.micro_classes",
    "landscape.cluster.jobs": "distributed.worker",
    "landscape.cluster.named": "distributed.engines",
    "landscape.cluster.parcels": "distributed.serialization",
    "landscape.cluster.ray_pool": "distributed.ray_workers",
    "landscape.cluster.team": "distributed.scheduler",
    "landscape.drawing.heat_maps": "plotting.heatmaps",
    "landscape.drawing.paper": "plotting.style",
    "landscape.drawing.sheet": "plotting.layout",
    "landscape.evaluation.compatibility": "evaluation.validation",
    "landscape.evaluation.copies": "evaluation.module_copy",
    "landscape.evaluation.first_layer": "evaluation.first_layer_cache",
    "landscape.evaluation.known_tasks": "evaluation.standard_tasks",
    "landscape.evaluation.measured_once": "evaluation.resumable",
    "landscape.evaluation.pixels": "evaluation.uint8_images",
    "landscape.evaluation.replica": "evaluation.model_replica",
    "landscape.evaluation.trained": "evaluation.trainable_parameters",
    "landscape.planes.adaptive": "landscape.planes.surface.adaptive",
    "landscape.planes.colours": "landscape.planes.drawing.color_scales",
    "landscape.planes.grids": "landscape.planes.surface.grids",
    "landscape.planes.kinds": "landscape.planes.basis.plane_bases",
    "landscape.planes.marks": "landscape.planes.drawing.markers",
    "landscape.planes.orthonormal_axes": "landscape.planes.basis.orthonormal_axes",
    "landscape.planes.preview": "landscape.planes.drawing.preview",
    "landscape.planes.scales": "landscape.planes.drawing.color_scales",
    "landscape.planes.surveying": "landscape.planes.surface.evaluate",
    "landscape.sentences": "landscape.planes.summary",
    "landscape.vision": "distributed.torchvision_import",
    "questions.cka": "decomposition.cka.analysis",
    "questions.curves": "training.curves.analysis",
    "questions.data": "decomposition.client_data.analysis",
    "questions.decompose": "decomposition.factors.analysis",
    "questions.disperse": "decomposition.dispersion.analysis",
    "questions.embed": "decomposition.embedding.analysis",
    "questions.explain": "decomposition.explanation.analysis",
    "questions.forgetting": "decomposition.forgetting.analysis",
    "questions.import_models": "landscape.interchange.import_models",
    "questions.imported": "landscape.interchange.import_models",
    "questions.line": "landscape.lines.analysis",
    "questions.parameters": "decomposition.parameters.analysis",
    "questions.plane": "landscape.planes.analysis",
    "questions.reaggregate": "decomposition.reaggregation.analysis",
    "questions.sharpness": "landscape.curvature.analysis",
    "questions.subsets": "decomposition.subsets.analysis",
    "questions.synergy": "decomposition.synergy.analysis",
    "questions.theory": "decomposition.theory.analysis",
    "questions.updates": "decomposition.updates.analysis",
    "questions.wima": "decomposition.windows.analysis",
    "reporting.kinds": "reporting.discover",
    "reporting.lacking": "reporting.missing_results",
    "training.architectures": "training.models.base",
    "training.branching": "training.loop.branch",
    "training.building": "training.build",
    "training.cohort_bench": "training.local.vectorized_model",
    "training.cohort_room": "training.local.cohort_storage",
    "training.cohort_training": "training.local.vectorized_training",
    "training.config": "training.config.config",
    "training.curve_bands": "training.curves.bands",
    "training.curve_events": "training.curves.tensorboard",
    "training.curve_figure": "training.curves.figure",
    "training.curve_following": "training.curves.follow",
    "training.curve_measures": "training.curves.measures",
    "training.curve_words": "training.curves.summary",
    "training.curves": "training.curves.result",
    "training.dataset": "training.data.dataset",
    "training.engine": "training.local.engine",
    "training.engine_choice": "training.local.engine_choice",
    "training.given_scale": "training.inputs.given_scale",
    "training.handed": "training.guards.handed",
    "training.identity": "training.loop.identity",
    "training.judging": "training.loop.server",
    "training.launching.names": "training.jobs.job_settings",
    "training.launching.origin": "training.jobs.environment",
    "training.launching.waiting": "training.jobs.wait",
    "training.layered": "training.models.sequential",
    "training.lineage": "training.loop.run_history",
    "training.local_training": "training.local.local_training",
    "training.machine": "training.benchmark",
    "training.memory": "training.local.resources",
    "training.methods": "training.methods.base",
    "training.one_round": "training.loop.federation",
    "training.opened": "training.guards.protected_classes",
    "training.own_calls": "training.guards.own_calls",
    "training.own_code": "training.import_string",
    "training.own_data": "training.data.custom",
    "training.own_model": "training.models.custom",
    "training.own_models": "training.loop.personalized",
    "training.own_task": "training.tasks",
    "training.pooling": "training.data.split",
    "training.pretrained": "training.loop.initial_model",
    "training.profile": "training.local.profile",
    "training.randomness": "training.rng",
    "training.reaggregation": "decomposition.reaggregation.aggregate",
    "training.reaggregation_result": "decomposition.reaggregation.result",
    "training.recipe_files": "training.config.recipes",
    "training.recording": "training.loop.record_policy",
    "training.recording_beside": "training.loop.background_recorder",
    "training.registry": "training.settings.registry",
    "training.replays": "decomposition.draws.replay",
    "training.returned_arrays": "training.guards.returned_arrays",
    "training.round_measures": "training.loop.metrics",
    "training.run_checks": "training.loop.verify_run",
    "training.run_curve": "training.curves.run_curve",
    "training.run_names": "training.curves.run_names",
    "training.run_state": "training.loop.state",
    "training.same_data": "training.data.same_data",
    "training.sample_arrays": "training.data.arrays",
    "training.scaling": "training.config.scale",
    "training.sections": "training.config.sections",
    "training.server_stepping": "training.loop.server",
    "training.settings": "training.settings.settings",
    "training.setup": "training.config.sources",
    "training.shared.recurrent": "training.models.recurrent",
    "training.shared.residual": "training.models.residual",
    "training.sketch_checks": "training.loop.verify_run",
    "training.splitting": "training.data.split",
    "training.standardised": "training.data.standardize",
    "training.sweeps.sharing": "training.sweeps.schedule",
    "training.sweeps.steps": "training.sweeps.schedule",
    "training.tables.best_of": "training.tables.statistics",
    "training.tables.paired": "training.tables.statistics",
    "training.training_loop": "training.loop.train",
    "training.windows.measuring": "decomposition.windows.sliding_mean",
    "training.windows.recorded_globals": "decomposition.windows.sliding_mean",
    "training.windows.sliding": "decomposition.windows.sliding_mean",
    "training.words": "training.settings.values",
    "training.workbench": "training.local.worker_model",
}
#: names that packages handed on, and the modules that have them, ``MODULE:NAME`` where under another name
NAMES = {
    "analysis.settings": {
        "Measured": "analysis.settings:EvaluationSettings",
    },
    "decomposition.embedding.pca_and_tsne": {
        "embed": "decomposition.embedding.pca_and_tsne:project",
    },
    "distributed.engines": {
        "cluster_named": "distributed.engines:open_cluster",
    },
    "landscape.curvature.result": {
        "Measure": "landscape.curvature.result:CurvatureMeasure",
    },
    "evaluation.uint8_images": {
        "Pixels": "evaluation.uint8_images:Uint8Images",
    },
    "training.config.scale": {
        "scaled": "training.config.scale:scale_tables",
    },
    "training.loop.server": {
        "step": "training.loop.server:step_server",
    },
    "training.sweeps.plan": {
        "planned": "training.sweeps.plan:plan_sweep",
    },
    "": {
        "Work": "analysis.execution:Execution",
    },
    "decomposition.explanation.claims": {
        "explain": "decomposition.explanation.explain",
    },
    "landscape": {
        "Compute": "evaluation.device",
        "cores": "distributed.cores",
        "run_in_workers": "evaluation.device",
        "Evaluator": "evaluation.evaluator",
        "Replica": "evaluation.model_replica",
        "Samples": "evaluation.samples",
        "Classification": "evaluation.standard_tasks",
        "Regression": "evaluation.standard_tasks",
        "Sequences": "evaluation.standard_tasks",
        "Task": "evaluation.tasks",
        "COLOURS": "plotting.style",
        "DASHES": "plotting.style",
        "GREY": "plotting.style",
        "MARKERS": "plotting.style",
        "new_figure": "plotting.style",
        "paper_style": "plotting.style",
        "save_figure": "plotting.style",
        "shortened": "plotting.style:shorten_label",
    },
    "decomposition": {
        "ErrorCurve": "training.curves.run_curve",
        "membership_labels": "training.data.membership",
        "membership_train": "training.data.membership",
    },
    "training": {
        "Machine": "training.benchmark:BenchmarkResult",
        "Replayer": "decomposition.draws.replay",
    },
    "checkpoints": {
        "Entry": "checkpoints.models.weights:TensorEntry",
        "Piece": "checkpoints.rounds.columns:ColumnChunk",
        "Policy": "checkpoints.rounds.retention:RetentionPolicy",
        "RecordedRows": "checkpoints.rounds.disk_matrix:RecordedMatrix",
        "RowsOnDisk": "checkpoints.rounds.disk_matrix:DiskMatrix",
        "ScratchRows": "checkpoints.rounds.disk_matrix:TemporaryMatrix",
        "expanded": "checkpoints.io.untrusted:expand_home",
        "on_disk": "checkpoints.rounds.disk_matrix:as_disk_matrix",
        "read_pieces": "checkpoints.rounds.columns:read_chunks",
        "reading": "checkpoints.io.untrusted:explain_read_errors",
        "spoken_size": "checkpoints.io.errors:format_size",
        "Variable": "results.arrays",
        "read_netcdf": "results.arrays",
        "write_netcdf": "results.arrays",
        "versions": "results.versions",
        "Partial": "results.resume:ResumeStore",
    },
}


def _new_place(name: str) -> tuple[str, str] | None:
    """Return the present path of a module that had another dotted path, and what has moved; None for one that never
    had.

    >>> _new_place("fedscope.training.building"), _new_place("fedscope.training.clients.fedprox")
    (('fedscope.training.build', 'training.building'),
     ('fedscope.training.methods.clients.fedprox', 'training.clients'))
    >>> _new_place("fedscope.training.nothing")
    """
    root, _, path = name.partition(".")
    if root != __package__:
        return None
    if place := MODULES.get(path):
        return f"{root}.{place}", path
    parts = path.split(".")
    for k in range(len(parts), 0, -1):
        old = ".".join(parts[:k])
        if place := PACKAGES.get(old):
            return ".".join([root, place, *parts[k:]]), old
    return None


#: packages of today, some of which have the path of an old one
_TODAY = {
    ".".join(parts[:k])
    for place in (*PACKAGES.values(), *MODULES.values())
    for parts in [place.split(".")]
    for k in range(1, len(parts) + 1)
}


class _Loader:
    """Gives the module at its new place under its old name, too."""

    def __init__(self, place: str) -> None:
        self.place = place

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module at its new place."""
        module = import_module(self.place)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is run again; what import has changed of the module is undone."""
        module.__spec__ = self._own


class Moved:
    """Asked first: below an old package Python would else find the new one's files, and load them a second time."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of a module that has moved; None for all others."""
        found = _new_place(name)
        if found is None or name.partition(".")[2] in _TODAY:  # whatever path is asked: of pytest it is another
            return None
        import warnings
        from importlib.machinery import ModuleSpec, PathFinder

        if found[1] in _TODAY and PathFinder.find_spec(name, path) is not None:
            return None
        place = found[0]
        warnings.warn(f"{name} is now {place}; its old name goes in the next version", DeprecationWarning, stacklevel=2)
        return ModuleSpec(name, _Loader(place), is_package=hasattr(import_module(place), "__path__"))  # type: ignore[arg-type]


def attributes_of(package: str, module: str) -> Callable[[str], Any]:
    """A package's ``__getattr__``: what a module held that had the package's name before is found in ``module``."""

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        from importlib.util import find_spec

        if find_spec(f"{package}.{name}") is not None:  # asked for before it is imported
            return import_module(f"{package}.{name}")
        place = f"{package}.{module}"
        return _forward(package, name, place)

    return find


def names_of(package: str, known: Callable[[str], Any] | None = None) -> Callable[[str], Any]:
    """A package's ``__getattr__``: ``known``, and the names of :data:`NAMES` that it handed on before."""

    def find(name: str) -> Any:
        place = NAMES[package.partition(".")[2]].get(name)
        if place is not None:
            return _forward(package, name, f"{__package__}.{place}")
        if known is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return known(name)

    return find


def _forward(package: str, name: str, place: str) -> Any:
    import warnings

    module, _, now = place.partition(":")
    now = now or name
    try:
        found = getattr(import_module(module), now)
    except AttributeError:
        raise AttributeError(f"module {package!r} has no attribute {name!r}") from None
    warnings.warn(f"{package}.{name} is now {module}.{now}", DeprecationWarning, stacklevel=3)
    return found


def install() -> None:
    """Have old names found, once."""
    if Moved not in sys.meta_path:
        sys.meta_path.insert(0, Moved)
