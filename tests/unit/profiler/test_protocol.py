import subprocess
import sys
from pathlib import Path

import pytest

from ptxbench.errors import InfrastructureError, InputError
from ptxbench.profiler import local, open_profiler, protocol
from ptxbench.profiler.http import HttpProfiler
from ptxbench.profiler.pool import host
from ptxbench.profiler.pool.pool import DevicePool
from ptxbench.profiler.replay import ReplayProfiler
from tests.conftest import compute_capability

PLUGINS = Path(protocol.__file__).parents[2]
without_device = pytest.mark.skipif(compute_capability() is not None, reason="there is a CUDA device")


def test_replay_needs_no_device(tmp_path: Path) -> None:
    profiler = open_profiler("replay", root=tmp_path, evidence_roots=(tmp_path,))
    assert isinstance(profiler, ReplayProfiler)
    assert profiler.origin == "replayed"


@without_device
def test_auto_replays_without_a_device(tmp_path: Path) -> None:
    assert open_profiler("auto", root=tmp_path, evidence_roots=(tmp_path,)).origin == "replayed"


@without_device
def test_local_without_a_device_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="use --profiler replay") as caught:
        open_profiler("local", root=tmp_path, evidence_roots=(tmp_path,))
    assert caught.value.kind == "no_device"


@pytest.mark.parametrize(("found", "given"), [([], [None]), (["3"], [None]), (["3", "GPU-5e"], ["3", "GPU-5e"])])
def test_local_is_a_pool_also_of_one_device_which_needs_no_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: list[str], given: list[str | None]
) -> None:
    """A pool's watch pauses, restarts and qualifies. The only device is the one that our own process would use."""
    monkeypatch.setattr(local, "device_present", lambda: True)
    monkeypatch.setattr(host, "visible_devices", lambda: found)
    pool = open_profiler("local", root=tmp_path, evidence_roots=())
    assert isinstance(pool, DevicePool)
    devices = [slot.profiler for slot in pool._slots]
    assert [device.visible for device in devices if isinstance(device, local.LocalProfiler)] == given
    assert all(getattr(device, "_safety_cache", None) is not None for device in devices)
    pool.close()


@pytest.mark.parametrize("name", ["", "Local", "remote"])
def test_unknown_name_lists_the_known(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"expected auto, local, replay, ray or the URL of a service, found {name!r}"):
        open_profiler(name, root=tmp_path, evidence_roots=())


def test_replaying_imports_nothing_heavy(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from ptxbench.profiler import open_profiler\n"
        "open_profiler('replay', root=Path(), evidence_roots=()).health()\n"
        "print(*{'torch', 'cuda', 'tvm_ffi', 'cupti'} & {name.partition('.')[0] for name in sys.modules})"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(PLUGINS)}, capture_output=True, text=True, check=True
    )
    assert found.stdout == "\n"


def test_a_url_names_a_service_and_asks_it_nothing(tmp_path: Path) -> None:
    profiler = open_profiler("http://127.0.0.1:9", root=tmp_path, evidence_roots=())
    assert isinstance(profiler, HttpProfiler)
    profiler.close()
