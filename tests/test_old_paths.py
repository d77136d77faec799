"""Old dotted paths: each is the module at its new place, and says so."""

from __future__ import annotations

import importlib
import warnings
from types import ModuleType

import pytest

from fedscope import old_paths

pytestmark = pytest.mark.same_elsewhere

# Packages of today have the path of two old ones, of which only what lay in them has moved.
ALL = {**old_paths.PACKAGES, **old_paths.MODULES}
for today in ("training.data", "training.models"):
    del ALL[today]
FORWARDING = [name for name in ALL if old_paths.MODULES.get(name, "").startswith(f"{name}.")]


def import_quietly(name: str) -> ModuleType:
    """Warnings come once, when a name is first imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(name)


@pytest.mark.parametrize("name", [name for name in ALL if name not in FORWARDING])
def test_an_old_path_is_the_module_at_its_new_place(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"fedscope\.{name} is now fedscope\.{ALL[name]}; "):
        old_paths.Moved.find_spec(f"fedscope.{name}")
    old = import_quietly(f"fedscope.{name}")
    new = importlib.import_module(f"fedscope.{ALL[name]}")
    assert old is new
    assert new.__spec__ is not None
    assert new.__spec__.name == new.__name__ == f"fedscope.{ALL[name]}"


@pytest.mark.parametrize("name", FORWARDING)
def test_a_module_that_became_a_package_hands_on_what_it_held(name: str) -> None:
    package, module = (importlib.import_module(f"fedscope.{place}") for place in (name, old_paths.MODULES[name]))
    held = [one for one in vars(module) if getattr(vars(module)[one], "__module__", None) == module.__name__]
    assert held
    for one in held:
        with pytest.warns(DeprecationWarning, match=rf"{name}\.{one} is now"):
            assert getattr(package, one) is vars(module)[one]


def test_what_lay_in_a_package_moved_with_it() -> None:
    fedprox = import_quietly("fedscope.training.clients.fedprox")
    assert fedprox is importlib.import_module("fedscope.training.methods.clients.fedprox")


@pytest.mark.parametrize(("package", "name"), [(p, n) for p, names in old_paths.NAMES.items() for n in names])
def test_a_name_that_a_package_handed_on_is_still_there(package: str, name: str) -> None:
    module, _, now = old_paths.NAMES[package][name].partition(":")
    place = importlib.import_module(f"fedscope.{module}")
    path = f"fedscope.{package}".rstrip(".")
    with pytest.warns(DeprecationWarning, match=rf"{path}\.{name} is now "):
        old = getattr(importlib.import_module(path), name)
    assert old is getattr(place, now or name)


@pytest.mark.parametrize("name", ["fedscope.training.nothing", "fedscope.nothing", "elsewhere.training.building"])
def test_other_names_are_not_found(name: str) -> None:
    assert old_paths._new_place(name) is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)


@pytest.mark.parametrize("package", ["checkpoints", "training", "training.methods", "checkpoints.runs"])
def test_an_attribute_that_never_was_is_none(package: str) -> None:
    assert not hasattr(importlib.import_module(f"fedscope.{package}"), "nothing")
