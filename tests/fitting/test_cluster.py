"""``fit`` on a Ray cluster: the model of one machine to the bit, also where a worker is killed."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import noiseproof
from noiseproof.io.processes import Cluster

FIT = """
import sys
import numpy as np
import ray
import noiseproof

data = np.load(sys.argv[1])
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=2**27)
noiseproof.fit(data["x"], data["y"], quick=True, engine="ray", folder=sys.argv[2])
ray.shutdown()
"""


def table():
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 1500)
    x = random.normal(size=(1500, 20)).astype(np.float32) + 2 * np.eye(3, 20, dtype=np.float32)[y]
    return x, np.where(random.random(1500) < 0.2, (y + 1) % 3, y)


def workers():
    """The processes in which tasks run at present."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if place.read_bytes().startswith(b"ray::_compute_sent"):
                yield int(place.parent.name)
        except OSError:
            continue


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds the worker in /proc")
def test_a_cluster_whose_worker_is_killed_fits_the_same_model(tmp_path):
    x, y = table()
    np.savez(tmp_path / "data.npz", x=x, y=y)
    killed = []

    def kill_one():
        end = time.monotonic() + 120
        while not killed and time.monotonic() < end:
            for number in workers():
                os.kill(number, signal.SIGKILL)
                killed.append(number)
                return
            time.sleep(0.005)

    thread = threading.Thread(target=kill_one, daemon=True)
    thread.start()
    command = [sys.executable, "-c", FIT, str(tmp_path / "data.npz"), str(tmp_path / "cluster")]
    subprocess.run(command, check=True, timeout=240, capture_output=True)
    thread.join()
    here = noiseproof.fit(x, y, quick=True, folder=tmp_path / "here")
    there = noiseproof.load(tmp_path / "cluster")
    assert killed
    assert np.array_equal(here.predict_proba(x), there.predict_proba(x))
    assert np.array_equal(here.audit.posterior, there.audit.posterior)
    assert [line.accuracy for line in here.leaderboard] == [line.accuracy for line in there.leaderboard]
    one, other = (sorted(path.name for path in (tmp_path / place).glob("*/*.safetensors")) for place in ("here", "cluster"))
    assert one == other


def test_an_address_without_a_cluster_is_named_at_once(monkeypatch):
    """Ray waits for minutes, or raises a RuntimeError."""
    calls = []

    def init(**options):
        calls.append(options["address"])
        raise RuntimeError("Module: nonsense does not exist.\nThis module was parsed")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        free = f"127.0.0.1:{closed.getsockname()[1]}"
    for address in (free, f"ray://{free}", "127.0.0.1:99999", "nonsense://x"):
        with pytest.raises(ConnectionError, match=f"no Ray cluster at '{address}': ") as found:
            Cluster(address)
        assert "\n" not in str(found.value)
    assert calls == ["nonsense://x"]


def test_without_ray_and_for_unknown_engines_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    x, y = table()
    with pytest.raises(ImportError, match="needs Ray"):
        noiseproof.fit(x, y, engine="ray")
    for wrong in ({"engine": "spark"}, {"address": "auto"}):
        with pytest.raises(ValueError, match="engine must be 'local' or 'ray'"):
            noiseproof.fit(x, y, **wrong)
