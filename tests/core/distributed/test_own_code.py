"""Code of one's own goes to workers whole: they have no file of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from own_code import own_module

from fedscope.distributed.serialization import Serializer, is_own_module, own_by_value

cloudpickle = pytest.importorskip("cloudpickle")


def test_a_worker_without_the_file_has_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    with own_module(tmp_path):
        import mine  # type: ignore[import-not-found]

        assert is_own_module(mine)
        assert not any(is_own_module(sys.modules[name]) for name in ("pytest", "json", "fedscope.methods"))
        pickler = own_by_value(cloudpickle.CloudPickler, cloudpickle.register_pickle_by_value)
        try:
            with Serializer(lambda array: array, pickler).held("one", [mine.Heavy(beta=0.25), mine.net(5)]) as parcel:
                content = parcel.content
        finally:
            cloudpickle.unregister_pickle_by_value(mine)
    program = """
import sys
import numpy as np
from fedscope.checkpoints import Layout, Weights
from fedscope.distributed.serialization import unpack
heavy, net = unpack(sys.stdin.buffer.read(), [])
assert "mine" not in sys.modules
layout = Layout.of(net)
start = Weights(layout, np.zeros(layout.size, np.float32), {})
clients = Weights(layout, np.ones((2, layout.size), np.float32), {})
from types import SimpleNamespace
served = heavy.step(heavy.init(start.parameters), start, clients, SimpleNamespace(p=np.array([0.5, 0.5])))
print(served.parameters[0], heavy.beta)
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], input=content, capture_output=True, cwd=tmp_path, check=False
    )
    assert done.stdout.decode().split() == ["1.0", "0.25"], done.stderr.decode()
