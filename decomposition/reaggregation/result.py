"""Re-aggregations of a recorded round, measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from math import isfinite, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ...checkpoints import Run, Weights
from ...checkpoints.io.errors import list_few
from ...plotting.style import describe_statistics
from ...results import Table, TableResult, columns_of, number, optional_bool
from ...results.labels import name_of_run
from ...results.models_beside import stored_models, write_models
from ...results.tables import optional_int

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: the columns of differences to plain FMA, which came later
PAIRED = ("loss_difference", "loss_difference_stderr", "error_difference", "error_difference_stderr")
#: and those of the place relative to its step, which came after these
PLACED = ("along_fma", "across_fma")


@dataclass(frozen=True)
class ModelRow:
    """One model of a round.

    Attributes:
        model: what it is called: ``recorded``, ``fma``, ``fedsa (classes=5)``.
        server, state: see :class:`~fedscope.decomposition.reaggregation.aggregate.Reaggregated`; "" of the recorded
        one. loss: mean cross-entropy in nats; error: share misclassified, 0..1.
        distance: ‖w − w_recorded‖ over the parameters, L2; None where the round's ``global`` was not recorded.
        identical: whether parameters and buffers are the recorded ones bit for bit; None alike.
        clients: how many models loss and error are the means of, where clients keep layers of their own, so that there
            is no one model: distance and identical are None, too; None where it is one model.
        loss_stderr, error_stderr: standard errors of these means over clients; None of one model.
        loss_difference, loss_difference_stderr: the mean over samples of the loss less plain FMA's on the same sample,
            and its standard error over samples; of several models the mean of theirs, and its standard error over
            clients. error_difference, error_difference_stderr: alike. None of a table of an earlier version, of a task
            without errors, and where a model is not finite.
        along_fma, across_fma: the place in the plane of the start, plain FMA and this model, in lengths of FMA's step:
            with u = w_fma − start, a = ⟨w − start, u⟩ / ‖u‖² and ‖w − start − a u‖ / ‖u‖. The start is (0, 0), plain
            FMA (1, 0); FMA with a server rate of 2 is (2, 0). None without the start, of several models, of adapters,
            where FMA does not move, and of a table of an earlier version.
    """

    model: str
    server: str
    state: str
    loss: float
    error: float
    distance: float | None
    identical: bool | None
    clients: int | None = None
    loss_stderr: float | None = None
    error_stderr: float | None = None
    loss_difference: float | None = None
    loss_difference_stderr: float | None = None
    error_difference: float | None = None
    error_difference_stderr: float | None = None
    along_fma: float | None = None
    across_fma: float | None = None

    @property
    def spread_over(self) -> str:
        """What the standard errors of its differences are over: ``samples``, or ``clients`` where each has a model."""
        return "samples" if self.clients is None else "clients"

    def half_of(self, stderr: float | None) -> float | None:
        """Half a 95 % interval of a difference: 1.96 standard errors over samples, of which there are many; over C
        clients Student's t on C − 1 degrees of freedom. None without a standard error.

        >>> one = ModelRow("ties", "ties", "", 0.2, 0.1, None, None)
        >>> mean = ModelRow("head=personal", "fma", "", 0.2, 0.1, None, None, clients=3)
        >>> one.half_of(0.1), round(mean.half_of(0.1), 3), one.half_of(None)
        (0.196, 0.43, None)
        """
        if stderr is None or self.clients is None:
            return None if stderr is None else 1.96 * stderr
        from scipy.special import stdtrit  # scipy.stats takes a second to import

        return float(stdtrit(self.clients - 1, 0.975)) * stderr


@dataclass(frozen=True)
class ClientModelRow:
    """The model of one client that keeps layers of its own: loss and error on the data of all rows."""

    model: str
    client: int
    loss: float
    error: float


@dataclass(frozen=True, eq=False)
class Reaggregation(TableResult):
    """A round as it was aggregated and as other servers would have aggregated it.

    Attributes:
        measured: the recorded model first, then plain FMA, then what was asked for.
        attrs: provenance: run, round, servers, data, split, samples, versions; ``diverged``, the clients by their ids
            whose recorded models are not finite; ``outside``, those of them without a part in a model, by its name,
            where there are any; ``members``, the clients that a server has chosen, by its name; ``own_weights``, the
            servers with weights of their own; ``layers``, pairs of a pattern and its server; ``layer_states``, what
            these servers began with.
        models: the models asked for, by their server's name; read when first used where it was loaded. In layers that
            clients keep it has their mean with p.
        by_client: where clients keep layers, each client's model.
    """

    command = "reaggregate"
    suffixes = (".reaggregate.csv", ".clients.csv", ".reaggregate.json")
    alongside = (".safetensors",)
    format = "fedscope-reaggregate"
    # version 1 had no servers by layer
    version = 2
    older = (1,)
    tables = (
        Table(
            ".reaggregate.csv",
            columns={
                **{"run": str, "round": int, "model": str, "server": str, "state": str, "split": str, "samples": int},
                **{"loss": float, "error": float, "distance": number, "identical": optional_bool},
                **{"clients": optional_int, "loss_stderr": number, "error_stderr": number},
                **dict.fromkeys((*PAIRED, *PLACED), number),
            },
            added=dict.fromkeys(("clients", "loss_stderr", "error_stderr", *PAIRED, *PLACED)),
        ),
        Table(".clients.csv", {"run": str, "round": int, **columns_of(ClientModelRow)}, optional=True),
    )

    measured: tuple[ModelRow, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    models: Mapping[str, Weights] = field(default_factory=dict)
    by_client: tuple[ClientModelRow, ...] = ()

    @classmethod
    def runs_named(cls, settings: Mapping[str, Any]) -> frozenset[str]:
        """None are known: its names are those of servers, too."""
        return frozenset()

    def rows(self) -> list[Any]:
        """BASE.reaggregate.csv: a row a model; BASE.clients.csv, where clients keep layers: a row a client."""
        about = [name_of_run(self.attrs["run"]), self.attrs["round"]]
        where = [self.attrs["split"], self.attrs["samples"]]
        models = ([*about, *astuple(row)[:3], *where, *astuple(row)[3:]] for row in self.measured)
        return [models, [(*about, *astuple(row)) for row in self.by_client] or None]

    def head(self) -> dict[str, Any]:
        """Return nothing: the provenance says it all."""
        return {}

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` gave, without the models, which :meth:`load` names."""
        return cls(
            tuple(ModelRow(**{name: row[name] for name in ModelRow.__annotations__}) for row in tables[0]),
            head["attrs"],
            by_client=tuple(
                ClientModelRow(**{name: row[name] for name in ClientModelRow.__annotations__}) for row in tables[1]
            ),
        )

    def save(self, base: Path | str) -> list[Path]:
        """Write the models, BASE.safetensors, or BASE.SERVER.safetensors of several, and BASE.reaggregate.csv and
        .json; returns their paths."""
        files = write_models(base, model_suffixes(self.attrs["servers"]), self.models.values())
        return [*files, *super().save(base)]

    @classmethod
    def load(cls, base: Path | str) -> Self:
        """Read the tables that :meth:`save` wrote; the models are read when they are used.

        Raises:
            FedscopeError: a file is missing, damaged, no such result, or does not fit the others.
        """
        result, main = super().load(base), cls.paths(base)[-1]
        servers = result.attrs["servers"]
        return replace(result, models=stored_models(main, cls.suffixes[-1], model_suffixes(servers), servers))

    def figures(self, width: float | None = None, title: str | None = None, **drawing: Any) -> dict[str, Figure]:
        """All figures by what stands behind the base in their names; none where no model has a difference to draw."""
        return super().figures(width, title, **drawing) if self.compared() else {}

    def compared(self) -> list[ModelRow]:
        """Return the models that have a finite difference to plain FMA, without plain FMA itself."""
        return [
            row
            for row in self.measured
            if row is not self.plain and row.loss_difference is not None and isfinite(row.loss_difference)
        ]

    @property
    def plain(self) -> ModelRow | None:
        """Plain FMA, whatever it is called: the first row of that server, for it is measured before what was asked."""
        return next((row for row in self.measured if row.server == "fma"), None)

    def called(self, server: str) -> str:
        """Return what a server is called: its own name, without its settings, or the label that was given to its
        model."""
        row = next((row for row in reversed(self.measured) if server and row.server == server), None)
        return server if row is None or settings_behind(row) is not None else row.model

    def summary(self) -> str:
        """Describe the models as a table, and what is to be known of it."""
        attrs = self.attrs
        wide = max(len("model"), *(len(row.model) for row in self.measured))
        lines = [
            f"{name_of_run(attrs['run'])}@{attrs['round']}, {attrs['split']} data, {attrs['samples']:,} samples",
            f"  {'model':{wide}}  {'loss':>8}  {'error':>7}  L2 from recorded",
        ]
        for row in self.measured:
            far = "-" if row.distance is None else f"{row.distance:.3g}"
            error = "-" if isnan(row.error) else f"{100 * row.error:5.3g} %"
            same = ", bit for bit" if row.identical and row.model != "recorded" else ""
            lines.append(f"  {row.model:{wide}}  {row.loss:8.4g}  {error:>7}  {far}{same}")
        return "\n".join([*lines, *self.notes(), *self.paired()])

    def paired(self) -> list[str]:
        """Describe every asked server's difference to plain FMA, and how often the clients' updates conflict."""
        said = []
        for row in self.measured:
            if row.server == "" or row is self.plain or row.loss_difference is None:
                continue
            words = f"loss {_with_error(row.loss_difference, row.half_of(row.loss_difference_stderr), 1)}"
            if row.error_difference is not None:
                half = row.half_of(row.error_difference_stderr)
                words += f", error {_with_error(row.error_difference, half, 100)} points"
            known = row.loss_difference_stderr is not None or row.error_difference_stderr is not None
            spread = f" (± {_what_half(row)})" if known else ""
            said.append(f"{row.model} less {self.called('fma')} on the same samples: {words}{spread}")
        if (share := self.attrs.get("sign_conflict")) is not None:
            what = "entries of B·A" if self.attrs.get("conflict_of") == "products" else "parameters"
            before = ", in the clients' own order of units" if self.attrs.get("align") else ""
            said.append(
                f"{100 * share:.3g} % of the {what} that moved were raised by some clients, lowered by others{before}"
            )
        return said

    def findings(self) -> dict[str, Any]:
        """Return the models, and what is to be known of them."""
        conflict = self.attrs.get("sign_conflict")
        found = {"rows": [vars(row) for row in self.measured], "sign_conflict": conflict, "notes": self.notes()}
        return {**found, "clients": [vars(row) for row in self.by_client]} if self.by_client else found

    def notes(self) -> list[str]:
        """Describe who diverged, what the servers' states began with, and what was left out, which only the run says:
        nothing where it lies elsewhere now."""
        from ...training.loop.run_history import config_at
        from ...training.settings.registry import find

        notes, number_ = [], self.attrs["round"]
        notes += self._of_diverged()
        for server, ids in self.attrs.get("members", {}).items():
            split, samples = self._chosen_on(server)
            who = f"client{'s' if len(ids) > 1 else ''} {list_few(ids)}"
            called = self.called(server)
            notes.append(f"{called} is the mean of {who}, chosen on {samples}{split} data")
            if split == self.attrs["split"]:
                notes.append(
                    f"{called} was chosen on the {split} data that it is measured on, where it looks better than it is"
                )
        for row in self.measured:
            if row.clients is not None:
                notes.append(self._of_clients(row))
        by_layer = [(server, kind) for server, kind in self.attrs.get("layer_states", {}).items()]
        for server, state in dict.fromkeys([*((row.server, row.state) for row in self.measured), *by_layer]):
            others = self.attrs.get("keeps", {})  # of servers that are not fedscope's, which nobody imports here
            keeps = others.get(server, "")
            if server and server not in others:
                keeps = find("servers", server)().about.keeps
            if state == "fresh":
                notes.append(
                    f"{self.called(server)} keeps {keeps} and starts here with an empty state, as in its first round"
                )
            elif state == "recorded":
                notes.append(f"{self.called(server)} goes on with {keeps} as recorded after round {number_ - 1}")
        if (by := self.attrs.get("align")) is not None:
            notes.append(f"the clients' units were brought into one order before, matched by {by}")
        if words := describe_statistics(self.attrs, str(self.attrs.get("normalization_policy", ""))):
            own = [self.called(server) for server in self.attrs.get("own_weights", ())]
            every = "with p, for every server"
            if "re-estimated" in words:
                every = "for every server"
            elif own:
                every = f"with p, and for {list_few(own)} with weights of {'its' if len(own) == 1 else 'their'} own"
            notes.append(f"{words}, {every}")
        path = Path(self.attrs["run"]["path"])
        run = Run.open(path) if (path / "run.json").is_file() else None
        if run is not None and run.config is not None and config_at(run, number_).average.averages_first:
            notes.append("the run averaged over rounds before its server stepped, which is left out here")
        return notes

    def _of_diverged(self) -> list[str]:
        """Describe who diverged, and in which models they have a part."""
        outside: dict[str, list[int]] = self.attrs.get("outside", {})
        alike: dict[tuple[str, ...], list[int]] = {}
        for client in self.attrs.get("diverged", ()):
            alike.setdefault(tuple(model for model, ids in outside.items() if client in ids), []).append(client)
        notes = []
        for without, ids in alike.items():
            who = f"client{'s' if len(ids) > 1 else ''} {list_few(ids)}"
            entered = [model for model in outside if model not in without]
            if not without:
                where = "every mean"
            elif entered:
                where = (
                    f"{' and '.join(entered)} alone: in the others {'they have' if len(ids) > 1 else 'it has'} no part"
                )
            else:
                where = f"no mean, as {'they have' if len(ids) > 1 else 'it has'} no part in any"
            notes.append(f"{who} diverged: recorded with values that are not finite, which enter {where}")
        return notes

    def _of_clients(self, row: ModelRow) -> str:
        """Describe whose mean the numbers of a row are, where clients keep layers."""
        kept = list_few(pattern for pattern, server in self.attrs["layers"] if server == "personal")
        spread = [f"loss ± {row.loss_stderr:.2g}"] if row.loss_stderr is not None else []
        if row.error_stderr is not None and not isnan(row.error_stderr):
            spread.append(f"error ± {100 * row.error_stderr:.2g} %")
        told = ", ".join([*spread, *(["one standard error"] if spread else [])])
        return (
            f"{row.model}: the mean over {row.clients} clients, 1/{row.clients} each, of the loss of each one's model, "
            f"which has its own {kept}, on the {self.attrs['split']} data ({told} over clients); in the "
            f"file {kept} has the clients' mean"
        )

    def _chosen_on(self, server: str) -> tuple[str, str]:
        """Find the split on which a server has chosen, and how many samples of it where not all."""
        tables = dict(zip(self.attrs["servers"], self.attrs["settings"], strict=True))
        of_layers = zip(self.attrs.get("layers", ()), self.attrs.get("layer_settings", ()), strict=True)
        table = {**tables, **{name: own for (_, name), own in of_layers}}[server]
        count = table.get("samples")
        return str(table["split"]), f"{count:,} samples of the " if count else ""


def settings_behind(row: ModelRow) -> str | None:
    """Return what a model's name has behind its server's: settings or layers, "" where it has none; None where it is a
    label of its own.

    >>> from types import SimpleNamespace
    >>> [settings_behind(SimpleNamespace(model=name, server="fedsa")) for name in ("fedsa (quantile=0.9)", "fedsaver")]
    [' (quantile=0.9)', None]
    """
    rest = row.model.removeprefix(row.server)
    return rest if row.model.startswith(row.server) and (not rest or rest.startswith((" (", ", "))) else None


def _what_half(row: ModelRow) -> str:
    """Return in words what :meth:`ModelRow.half_of` is."""
    if row.clients is None:
        return "1.96 standard errors over samples"
    return f"half a 95 % interval over clients, by Student's t on {row.clients - 1} degrees of freedom"


def _with_error(mean: float, half: float | None, scale: float) -> str:
    """``+0.012 ± 0.004``, with half an interval.

    >>> _with_error(0.01234, 0.0039, 1), _with_error(-0.02, None, 100)
    ('+0.0123 ± 0.0039', '-2')
    """
    return f"{scale * mean:+.3g}" + ("" if half is None else f" ± {scale * half:.2g}")


def model_suffixes(servers: Sequence[str]) -> tuple[str, ...]:
    """Return the ends of the names of the models' files, behind the base.

    >>> model_suffixes(["fedsa"]), model_suffixes(["fedsa", "fedadam"])
    (('.safetensors',), ('.fedsa.safetensors', '.fedadam.safetensors'))

    Of classes of one name in two modules the modules' names are there, too.

    >>> model_suffixes(["a:FedX", "b.c:FedX"])
    ('.a.FedX.safetensors', '.b.c.FedX.safetensors')
    """
    from ...training.settings.own_code import short_name

    if len(servers) == 1:
        return (".safetensors",)
    short = [short_name(server) for server in servers]
    folded = [word.casefold() for word in short]  # two files of one name where the disk knows no capitals
    words = [
        server.replace(":", ".") if folded.count(word.casefold()) > 1 else word
        for server, word in zip(servers, short, strict=True)
    ]
    return tuple(f".{word}.safetensors" for word in words)
