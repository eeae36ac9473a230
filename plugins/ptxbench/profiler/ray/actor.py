"""What runs on the nodes: the actor that has one GPU, and the task that builds. All crosses as JSON and bytes."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import time
from functools import lru_cache
from pathlib import Path

from ptxbench import __version__
from ptxbench.cases.arch import Arch
from ptxbench.errors import InfrastructureError, InputError
from ptxbench.files import write_whole
from ptxbench.profiler.pool.host import open_pool
from ptxbench.profiler.protocol import Health, Profiler, open_profiler
from ptxbench.profiler.ray.address import Behind
from ptxbench.profiler.wire import Answer, Request, perform
from ptxbench.records import Build, Candidate, InfrastructureFault, Record
from ptxbench.toolchain import Built, Toolchain
from ptxbench.toolchain.cache import default_cache_dir


class Compiled(Record):
    """What a build task found; the object's bytes travel beside it."""

    build: Build | None = None
    fault: InfrastructureFault | None = None
    input_error: str = ""


class Hello(Record):
    """An actor that has started."""

    version: str
    node: str
    health: Health | None = None
    fault: InfrastructureFault | None = None


class Reply(Record):
    """What an actor answers."""

    answer: Answer = Answer()
    input_error: str = ""
    """Why stored evidence could not be read."""
    notes: tuple[str, ...] = ()
    """What happened to its device."""
    health: Health | None = None


def unforeseen(error: BaseException) -> InfrastructureFault:
    """The fault that an error is: exceptions of ours would have to be pickled, and of libraries often cannot be."""
    if isinstance(error, InfrastructureError):
        return InfrastructureFault(kind=error.kind, message=str(error))
    return InfrastructureFault(kind="internal_error", message=f"{type(error).__name__}: {error}")


def node_name() -> str:
    """The node of whoever calls, for people: its host, and the beginning of Ray's id."""
    import ray

    return f"{os.uname().nodename}/{ray.get_runtime_context().get_node_id()[:8]}"


@lru_cache(maxsize=1)
def _toolchain() -> Toolchain:
    return Toolchain.discover()


def compile_candidate(candidate: str, arch: str) -> tuple[str, bytes]:
    """A task: build with the node's own toolchain and cache. Returns ``Compiled`` and the object, empty if none."""
    try:
        built = _toolchain().build(Candidate.model_validate_json(candidate), Arch.model_validate_json(arch))
        content = built.so_path.read_bytes() if built.so_path is not None else b""
    except InputError as error:
        return Compiled(input_error=str(error)).model_dump_json(), b""
    except Exception as error:  # whatever it is: who asked is told
        return Compiled(fault=unforeseen(error)).model_dump_json(), b""
    return Compiled(build=built.build).model_dump_json(), content


class Delivered:
    """A builder for ``wire.perform``: what another node of the cluster built, if it is what was asked for."""

    def __init__(self, compiled: Compiled, content: bytes, folder: Path) -> None:
        self._compiled = compiled
        self._content = content
        self._folder = folder

    def build(self, candidate: Candidate, arch: Arch) -> Built:
        """As ``Toolchain.build``. Raises InfrastructureError("build_mismatch") for another source or object."""
        build = self._compiled.build
        if build is None or build.candidate_sha256 != candidate.sha256:
            found = build.candidate_sha256[:16] if build is not None else "nothing"
            message = f"expected a build of source {candidate.sha256[:16]} for {arch.name}, found one of {found}"
            raise InfrastructureError("build_mismatch", message)
        if build.so_sha256 is None:
            return Built(build, None, candidate)
        digest = hashlib.sha256(self._content).hexdigest()
        if digest != build.so_sha256:
            message = (
                f"expected an object of hash {build.so_sha256[:16]}, found {digest[:16]}; it was changed on the way"
            )
            raise InfrastructureError("build_mismatch", message)
        path = self._folder / f"{digest}.so"
        if not path.exists():
            write_whole(path, self._content)
            path.chmod(0o755)
        return Built(build, path, candidate)


class Device:
    """An actor: one GPU in a pool of its own, or stored evidence in its place.

    ``hello`` may be called while ``perform`` runs. Nothing is raised but what Ray raises.
    """

    def __init__(self, behind: Behind, root: str, evidence_roots: list[str], pace_s: float) -> None:
        # Ray gives an actor one thread of OpenMP; the oracle shall have what it has without Ray.
        os.environ.pop("OMP_NUM_THREADS", None)
        self._behind = behind
        self._root = Path(root)
        self._evidence_roots = tuple(map(Path, evidence_roots))
        self._pace_s = pace_s
        self._profiler: Profiler | None = None
        self._lock = threading.Lock()
        # Beside what the toolchain builds, since a sandbox can load objects from there.
        cache = default_cache_dir()
        cache.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="ray-", dir=cache))
        self._folder.chmod(0o755)

    def hello(self) -> str:
        """``Hello``: starts the profiler, and its oracle."""
        try:
            hello = Hello(version=__version__, node=node_name(), health=self._opened().health())
        except Exception as error:  # whatever it is: who asked is told
            hello = Hello(version=__version__, node=node_name(), fault=unforeseen(error))
        return hello.model_dump_json()

    def perform(self, request: str, compiled: str, content: bytes) -> str:
        """``Reply`` to a request whose source was built elsewhere."""
        try:
            profiler = self._opened()
            time.sleep(self._pace_s)
            delivered = Delivered(Compiled.model_validate_json(compiled), content, self._folder)
            answer = perform(Request.model_validate_json(request), profiler, delivered)
            reply = Reply(answer=answer, notes=_notes(profiler), health=profiler.health())
        except InputError as error:
            reply = Reply(input_error=str(error))
        except Exception as error:  # whatever it is: who asked is told
            reply = Reply(answer=Answer(fault=unforeseen(error)))
        return reply.model_dump_json()

    def rest(self, seconds: float) -> str:
        """``Hello``, after some time: a device that is not to be trusted now may be later."""
        time.sleep(seconds)
        return self.hello()

    def pid(self) -> int:
        """Of its process, on its node."""
        return os.getpid()

    def close(self) -> None:
        """End what was started here."""
        with self._lock:
            profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _opened(self) -> Profiler:
        with self._lock:
            if self._profiler is None:
                self._profiler = self._open()
            return self._profiler

    def _open(self) -> Profiler:
        if self._behind == "replay":
            return open_profiler("replay", root=self._root, evidence_roots=self._evidence_roots)
        # A pool also of one GPU, which is what Ray gives: it has the watch, and whoever asks is elsewhere.
        return open_pool(root=self._root)


def _notes(profiler: Profiler) -> tuple[str, ...]:
    take = getattr(profiler, "take_notes", None)
    return tuple(take()) if take is not None else ()
