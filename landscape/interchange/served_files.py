"""Global models of an import that a server method makes of each round's clients, where no file has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError, Layout, Weights
from ...checkpoints.models.expected import ExpectedModel, tied_names
from ...checkpoints.recorder.coerce_models import ModelTensors
from ...evaluation.tied_parameters import tie_again
from ...training.config.config import Config
from ...training.guards.own_calls import ask
from ...training.inputs.given_servers import refuse_no_server, servers_of, settings_of
from ...training.local.cohort_storage import CohortStorage
from ...training.local.resources import say_memory
from ...training.loop.federation import mean_buffers
from ...training.loop.server import look_ahead, step_server, validator_of, warn_of_test_data
from ...training.methods.base import Cohort, ServerMethod, State
from ...training.methods.servers.checkpoints import is_in_time
from ...training.methods.servers.fma import FMA
from ...training.settings.own_code import OwnCode
from ...training.settings.registry import find, method_name, names
from .network_of_files import NetworkFor, NetworkOfFiles

#: what the network and the data are needed for
WHY = "it looks at what the models do", "it looks at what they do on samples"


def served_files(
    server: Any,
    settings: Mapping[str, Any] | Sequence[str],
    expected: ExpectedModel | None,
    network: NetworkFor,
    out: Path,
    *,
    global_: Path | str | None,
) -> ServedFiles | None:
    """Return what makes the global models by a server; None where that is the mean which they are without.

    Args:
        expected: the architecture's model, where that is known.
        out: the run's folder, which need not be there.

    Raises:
        FedscopeError: an unknown server or setting; settings of none; a server that counts local steps or all clients,
            which files do not say; global models that are given; as :func:`~.network_of_files.network_of_files`.
    """
    changes = settings_of(settings)
    if server is None:
        key, value = next(iter(changes.items()))
        raise FedscopeError(f"server.{key}={value} is for a server, and none is given; give --server, too")
    ((name, own),) = servers_of([server], "server=").items()
    refuse_no_server(name)
    find("servers", name)  # an unknown name is said first, and a package's method imported
    if global_ is not None:
        raise FedscopeError(
            f"--server {name} makes the models that --global {global_} gives already; leave one of them out"
        )
    config = Config.read({"server": {"method": name, **own, **changes}})
    for counts, what in (("counts_steps", "local steps"), ("counts_clients", "all clients")):
        if getattr(config.server, counts):
            raise FedscopeError(
                f"--server {name} counts {what}, which files of models do not say; give another server, or with "
                "--global the models that it has made"
            )
    if config.server == FMA():
        return None
    warn_of_test_data(config.server)
    probed = network(f"--server {name}", WHY) if config.server.validates_on is not None else None
    folder = next(path for path in (out, *out.absolute().parents) if path.is_dir())
    return ServedFiles(config, expected, probed, folder, name.source.sha256 if isinstance(name, OwnCode) else "")


class ServedFiles:
    """Makes the global models of rounds by one server, round after round, with the state that it keeps.

    ``server.step(state, start, clients, cohort)`` as in training, in the precision that questions read the models in:
    what :func:`fedscope.reaggregate` gives for such a round, begun with the state of the round before.

    Args:
        config: with the server.
        expected: the architecture's model, where that is known: its layout, and which of its names are one tensor.
        network: for servers that compare models, or look at what they do.
        folder: on whose disk the clients of a large round are put.
        source: the sum of the source of a server of the user's own.

    Attributes:
        provenance: for ``run.json``: the server's name and settings, and of one of the user's own its source's sum.
        members: of rounds, the clients that a server has chosen among them.
    """

    def __init__(
        self,
        config: Config,
        expected: ExpectedModel | None,
        network: NetworkOfFiles | None,
        folder: Path,
        source: str = "",
    ) -> None:
        self._server: ServerMethod = config.server
        self._kinds = None if expected is None else expected.layout
        self._tied = {} if expected is None else {name: {name, *others} for name, others in expected.tied.items()}
        self._network, self._folder = network, folder
        self._state: State | None = None
        self._round = 0
        table = config.tables()["server"]
        self.provenance: dict[str, Any] = {"server": table.pop("method"), "settings": table}
        self.provenance |= {"sha256": source} if source else {}
        self.members: dict[int, list[int]] = {}

    @property
    def name(self) -> str:
        """The server's name."""
        return method_name(self._server)

    @property
    def in_time(self) -> bool:
        """True if the server takes the order of clients as time."""
        return is_in_time(self._server)

    @property
    def starts(self) -> bool:
        """True if the server steps from the model that clients were sent."""
        return not self._server.forgets_start

    def __call__(
        self,
        number: int,
        start: ModelTensors | None,
        clients: Mapping[int, ModelTensors],
        samples: Mapping[int, int] | None,
        place: str,
        adapters: Mapping[str, Any],
        /,
    ) -> ModelTensors:
        """Return the model that the server makes of a round's clients.

        Args:
            number: of the round in the run.
            start, clients: in one order of tensors.
            samples: n_k; without them all weigh the same.
            place: of the round, for sentences.
            adapters: what the run says of their rank and scale.

        Raises:
            FedscopeError: a server that steps from the start, and a round without; a single client; as the server.
        """
        if start is None and self.starts:
            others = [name for name in names("servers") if find("servers", name).forgets_start]
            raise FedscopeError(
                f"{place} has no model that the clients were sent, from which --server {self.name} steps; give it with "
                f"--start, or a server that needs none: {', '.join(others)}"
            )
        ids = sorted(clients)
        if len(ids) < 2:
            raise FedscopeError(
                f"{place} has one client alone, of which --server {self.name} has nothing to make; leave --server out"
            )
        first = clients[ids[0]]
        layout = (start or first).layout(self._kinds)
        begun = layout.flatten((start or first).numbers())
        n = np.array([1 if samples is None else samples[k] for k in ids], np.int64)
        rows = self._rows([clients[k] for k in ids], layout, place)
        cohort = Cohort(
            round=number,
            client_ids=np.array(ids, np.int64),
            samples=n,
            steps=np.zeros(len(ids), np.int64),
            p=ask(self._server, self._server.weights, n),
            clients=len(ids),
            validator=self._validator(),
            adapters=adapters,
        )
        state = self._state
        if state is None:
            state = ask(self._server, self._server.init, begun.parameters)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # of clients that diverged
            served = step_server(self._server, state, begun, rows, cohort)
            made = Weights(layout, served.parameters, mean_buffers(rows, cohort, served))
        self._tied = self._tied or _tied_in([one for one in (start, *clients.values()) if one is not None])
        self._state, self._round = served.state, number
        if served.p is not None and self._server.validates_on is not None:
            self.members[number] = [ids[k] for k in np.flatnonzero(served.p)]
        return first.with_numbers(tie_again(made, self._tied).arrays())

    def sent(self, global_: ModelTensors) -> ModelTensors:
        """Return what the server sends in place of the model that it has made of the round before."""
        if self._state is None:
            return global_
        layout = global_.layout(self._kinds)
        w = layout.flatten(global_.numbers())
        ahead = look_ahead(self._server, self._state, w, self._round)
        return global_ if ahead is w else global_.with_numbers(tie_again(ahead, self._tied).arrays())

    def _rows(self, clients: Sequence[ModelTensors], layout: Layout, place: str) -> Weights:
        """Stack models, on the disk where they are large."""
        say_memory(self._server, layout, len(clients), f"all {len(clients)} clients of {place}")
        rows = CohortStorage(self._folder).rows(len(clients), layout.size, layout.dtype)
        buffers: dict[str, list[np.ndarray]] = {entry.name: [] for entry in layout.buffers}
        for k, model in enumerate(clients):
            one = layout.flatten(model.numbers())
            rows[k] = one.parameters
            for name, values in one.buffers.items():
                buffers[name].append(values)
        return Weights(layout, rows, {name: np.stack(values) for name, values in buffers.items()})

    def _validator(self) -> Any:
        network = self._network
        if self._server.validates_on is None or network is None:
            return None
        # as reaggregate measures them on a run of another program: of its data, with its seed
        return validator_of(self._server, network.dataset, network.module, None, 0, network.compute)


def _tied_in(models: Sequence[ModelTensors]) -> dict[str, set[str]]:
    """Find the names of tensors that are one in every model, where no architecture says it; all of them by each."""
    each = [tied_names(model.arrays) for model in models]
    found = {
        name: {name, *others}.intersection(*({name, *one.get(name, ())} for one in each))
        for name, others in each[0].items()
    }
    return {name: names for name, names in found.items() if len(names) > 1}
