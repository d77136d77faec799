"""A class of one's own is refused in one sentence where it is no method, or has settings that no file holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError
from fedscope.methods import AverageMethod, ClientMethod, Partitioner, ServerMethod, setting
from fedscope.training.settings.code_kinds import KINDS
from fedscope.training.settings.own_classes import kind_of, refuse_other_class

pytestmark = pytest.mark.same_elsewhere


@dataclass(frozen=True)
class Fine(ServerMethod):
    rate: float = setting(0.5, "a rate", above=0)
    many: tuple[float, ...] = setting((0.1,), "several")
    how: Literal["a", "b"] = setting("a", "a choice")
    count: int | None = setting(None, "a number, or none")
    limits: ClassVar = {"fma": {"rate": 1.0}}


class Plain(ServerMethod):
    """Without settings of its own it needs no decorator."""


class Undecorated(ServerMethod):
    rate: float = setting(0.5, "a rate")


class Untyped(ServerMethod):
    rate = setting(0.5, "a rate")


@dataclass(frozen=True)
class Arrays(ServerMethod):
    start: np.ndarray = setting(None, "an array")  # noqa: RUF009


@dataclass(frozen=True)
class Tables(ServerMethod):
    table: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Undocumented(ServerMethod):
    rate: float = 0.5


@dataclass(frozen=True)
class OfClients(ClientMethod):
    """Another kind."""


def test_what_is_right_passes() -> None:
    refuse_other_class(KINDS["server"], Fine, "here")
    refuse_other_class(KINDS["server"], Plain, "here")
    assert [kind_of(one) for one in (Fine, OfClients, AverageMethod, Partitioner)] == [
        KINDS[name] for name in ("server", "client", "average", "partition")
    ]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (OfClients, r"^here: OfClients is not a server method; it is a client method: give it as --client$"),
        (int, r"^here: int is not a server method; derive it from fedscope\.methods\.ServerMethod, as fedscope"),
        (ServerMethod, r"^here: ServerMethod is only the base of a server method; name your own class$"),
        (Undecorated, r"Undecorated has the setting rate, but is no dataclass of its own; write @dataclass\("),
        (Untyped, r'the setting rate of Untyped has no type; write its type, as in rate: float = setting\(0\.9, "'),
        (Arrays, r"the setting start of Arrays has the type ndarray, which no configuration holds; use int, float"),
        (Tables, r"the setting table of Tables has the type dict\[str, float\], which no configuration holds"),
        (Undocumented, r"the field rate of Undocumented does not say what it is; write rate: float = setting\(DEFAULT"),
    ],
)
def test_what_is_wrong_is_said(found: Any, said: str) -> None:
    with pytest.raises(FedscopeError, match=said):
        refuse_other_class(KINDS["server"], found, "here")
