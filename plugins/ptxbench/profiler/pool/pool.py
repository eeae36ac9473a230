"""The pool: one thread per device, a scheduler between them, and whoever asks waits for a future."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Literal, TypeVar

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.footprint import footprint
from ptxbench.profiler.pool.costs import Kind
from ptxbench.profiler.pool.readings import Alarm, Reader
from ptxbench.profiler.pool.report import device_healths, gone, notes_of, other_kind, too_large, typed
from ptxbench.profiler.pool.residents import Need
from ptxbench.profiler.pool.scheduler import Scheduler, Task
from ptxbench.profiler.pool.slot import FINAL_FAULTS, DeviceProfiler, Job, Outcome, Slot
from ptxbench.profiler.pool.watch import Limits
from ptxbench.profiler.protocol import CLOSED, Health, SafetyTool
from ptxbench.profiler.state_key import state_key
from ptxbench.profiler.ticket import current_ticket
from ptxbench.records import DeviceIdentity, Evidence, InstructionEvidence, SafetyEvidence

if TYPE_CHECKING:
    from ptxbench.cases.case import Case
    from ptxbench.toolchain import Built

TICK_S = 0.1
"""How soon a stop, a stuck operation or a wait that no longer pays is noticed."""
ABANDON_S = 30.0
"""An operation that was ended by force and does not return within this time is given up, and its device with it."""

Result = TypeVar("Result")


class DevicePool:
    """Implements ``Profiler`` over several devices. Nothing is started before it is needed, nor more than that."""

    origin: Literal["measured", "replayed"] = "measured"

    def __init__(
        self,
        names: Sequence[str],
        open_device: Callable[[str], DeviceProfiler],
        open_reader: Callable[[DeviceProfiler], Reader],
        *,
        stopped: Callable[[], bool] = lambda: False,
        limits: Limits | None = None,
    ) -> None:
        """``names`` are the devices as CUDA_VISIBLE_DEVICES names them; ``open_device`` starts nothing yet.

        Once ``stopped`` says so, evaluations that wait for a device raise InfrastructureError("stopped").
        """
        self._limits = limits or Limits()
        self._slots = [
            Slot(index, name, open_device(name), open_reader, self._limits) for index, name in enumerate(names)
        ]
        self._stopped = stopped
        self._scheduler = Scheduler()
        self._jobs: dict[int, Job] = {}
        self._numbers = count()
        self._names: dict[str, str] = {}
        self._needs: dict[str, Need] = {}
        self._notes: list[str] = []
        self._kind: DeviceIdentity | None = None
        self._threads: dict[int, threading.Thread] = {}
        self._closing = False
        self._changed = threading.Condition()

    # What the protocol asks for.

    def evaluate(self, case: Case, built: Built) -> Evidence | None:
        """Trials, latency, baseline on one of the devices."""
        return self._done("evaluate", case, case, lambda device: device.evaluate(case, built))

    def instructions(self, case: Case, built: Built) -> InstructionEvidence:
        """Nsight Compute over one call."""
        return self._done("instructions", case, case, lambda device: device.instructions(case, built))

    def sanitize(self, case: Case, built: Built, tool: SafetyTool) -> SafetyEvidence:
        """compute-sanitizer over one call."""
        needed = tool == "memcheck"
        kind: Kind = "sanitize" if needed else "check"
        staged = case if needed else case.shrunk()
        return self._done(kind, case, staged, lambda device: device.sanitize(case, built, tool))

    def health(self) -> Health:
        """Every device, starting the first if none is known yet. Waits for nobody's measurement after that."""
        with self._changed:
            while (known := self._kind) is None:
                if self._closing:
                    raise InfrastructureError("stopped", CLOSED)
                if all(slot.watch.state == "quarantined" for slot in self._slots):
                    raise gone(self._slots)
                self._need(1)
                self._changed.wait(TICK_S)
            devices = device_healths(self._slots, self._scheduler, self._names)
        ready = sum(device.state in ("ready", "busy") for device in devices)
        of = f", {ready} of {len(devices)} devices ready" if len(devices) > 1 else ""
        return Health(kind="local", device=known, message=f"{known.name}, driver {known.driver}{of}", devices=devices)

    def take_notes(self) -> list[str]:
        """What happened to devices and operations since the last time, for people."""
        with self._changed:
            for slot in self._slots:
                self._notes += notes_of(slot)
            notes, self._notes = self._notes, []
        return notes

    def close(self) -> None:
        """End every oracle, behind what is measured now. Idempotent."""
        with self._changed:
            self._closing = True
            self._give_up_waiting(CLOSED)
            self._changed.notify_all()
        for index, thread in self._threads.items():
            # A device may be given up only now: looked for again and again, since its thread does not end.
            while thread.is_alive() and not self._is_lost(index):
                thread.join(TICK_S)

    # Handing over.

    def _done(self, kind: Kind, case: Case, staged: Case, call: Callable[[DeviceProfiler], Result]) -> Result:
        """Have it done, and wait for that."""
        ticket, state = current_ticket(), state_key(staged)
        with self._changed:
            if self._closing:
                raise InfrastructureError("stopped", CLOSED)
            self._names[state] = staged.name if staged is case else f"{case.name} (shrunk)"
            task = Task(next(self._numbers), kind, state, self._need_of(state, staged), ticket.client, ticket.priority)
            job = Job(task, case, call, Future())
            self._jobs[task.number] = job
            self._scheduler.submit(task)
            self._place()
        result: Result = job.future.result()
        return result

    def _need_of(self, state: str, case: Case) -> Need:
        if state not in self._needs:
            found = footprint(case)
            self._needs[state] = Need(found.arena + found.checked, found.building)
        return self._needs[state]

    def _need(self, devices: int) -> None:
        """Have so many devices started, beside those that cannot be used."""
        if self._closing:
            return
        lost = sum(slot.watch.state == "quarantined" for slot in self._slots)
        if not self._threads:
            self._run_thread(-1, self._tend)
        for index in range(min(devices + lost, len(self._slots))):
            if index not in self._threads:
                self._run_thread(index, partial(self._serve, self._slots[index]))

    def _run_thread(self, index: int, target: Callable[[], None]) -> None:
        # A daemon: one whose device does not answer even a kill must not keep the process.
        thread = threading.Thread(target=target, name=f"ptxbench-pool-{index}", daemon=True)
        self._threads[index] = thread
        thread.start()

    def _place(self) -> None:
        """Have begun what can begin. Wakes the devices' threads only then: they call this themselves."""
        if self._closing:
            # Idle devices' threads have ended or are about to; what was handed back must not wait for them.
            self._give_up_waiting(CLOSED)
            return
        now = time.monotonic()
        self._need(len(self._jobs))
        self._fail_hopeless()
        placed = self._scheduler.place(now)
        for task, device in placed:
            slot = self._slots[device]
            slot.job, slot.since, slot.stuck = self._jobs[task.number], now, None
        if placed:
            self._changed.notify_all()

    def _resolve(self, job: Job, error: BaseException | None, value: object = None) -> None:
        del self._jobs[job.task.number]
        if error is not None:
            job.future.set_exception(error)
        else:
            job.future.set_result(value)

    # A device's thread.

    def _serve(self, slot: Slot) -> None:
        """Do what the device's watch and the scheduler ask for, until the pool is closed."""
        try:
            while (step := self._next_step(slot)) is not None:
                step()
        except Exception as error:  # a fault of ours: nobody shall wait for this device for ever
            self._lose(slot, typed(error))
        finally:
            slot.profiler.close()

    def _lose(self, slot: Slot, error: InfrastructureError) -> None:
        with self._changed:
            job, slot.job = slot.job, None
            slot.watch.abandon(str(error), time.monotonic())
            if job is not None:
                self._scheduler.failed(slot.index, time.monotonic())
                self._resolve(job, error)
            self._sync(slot)

    def _next_step(self, slot: Slot) -> Callable[[], None] | None:
        with self._changed:
            while not (self._closing and slot.job is None):
                now = time.monotonic()
                slot.watch.tick(now)
                if slot.job is not None and not slot.watch.ready:
                    self._hand_back(slot, now)
                    continue
                self._sync(slot)
                if slot.job is not None:
                    return partial(self._measure, slot, slot.job)
                if slot.watch.state == "restarting" and slot.watch.may_try(now):
                    return partial(self._start, slot)
                if slot.watch.state == "qualifying" and slot.watch.may_try(now):
                    return partial(self._qualify, slot)
                if self._limits.poll_s <= now - slot.looked_at:
                    return partial(self._poll, slot)
                self._changed.wait(self._limits.poll_s - (now - slot.looked_at))
            return None

    def _hand_back(self, slot: Slot, now: float) -> None:
        """An alarm came between the placing of a job and its beginning."""
        slot.job = None
        self._scheduler.give_back(slot.index, now)
        if self._closing:
            self._give_up_waiting(CLOSED)

    def _sync(self, slot: Slot) -> None:
        """Tell the scheduler whether the device takes work."""
        if slot.watch.ready and slot.identity is not None:
            self._scheduler.open(slot.index, slot.identity.memory_bytes)
        else:
            self._scheduler.shut(slot.index)
        self._place()

    def _measure(self, slot: Slot, job: Job) -> None:
        outcome = slot.measure(job)
        with self._changed:
            if slot.job is not job:
                slot.watch.lost = False  # it came back after all, when its job was somebody else's
                return
            slot.job = None
            self._settle(slot, job, outcome)
            self._sync(slot)

    def _settle(self, slot: Slot, job: Job, outcome: Outcome) -> None:
        now = time.monotonic()
        if outcome.alarm is not None:
            slot.watch.alarm(outcome.alarm, now)
        if not outcome.begun:
            self._scheduler.give_back(slot.index, now)
        elif outcome.disturbed and not job.again and (not outcome.elsewhere or self._is_another_ready(slot)):
            job.again = True
            job.task = self._scheduler.give_back(slot.index, now, avoid=True)
            self._notes.append(f"{job.case.name}: {job.task.kind} is done again: {slot.name}: {outcome.disturbed}")
        elif outcome.error is not None:
            self._scheduler.failed(slot.index, now)
            self._resolve(job, outcome.error)
        elif outcome.disturbed and not outcome.flagged:
            self._scheduler.failed(slot.index, now)
            message = f"{job.case.name}: disturbed twice, so not published; {slot.name}: {outcome.disturbed}"
            self._resolve(job, InfrastructureError("device_disturbed", message))
        else:
            run = outcome.value.run if isinstance(outcome.value, Evidence) else None
            self._scheduler.finished(slot.index, now, built=not run.workload_state_cached if run else None)
            self._resolve(job, None, outcome.value)
        self._scheduler.reported(slot.index, slot.profiler.states)

    def _is_another_ready(self, slot: Slot) -> bool:
        return any(other.watch.ready for other in self._slots if other is not slot)

    def _start(self, slot: Slot) -> None:
        found: DeviceIdentity | InfrastructureError
        try:
            found = slot.start()
        except Exception as error:  # whatever it is: those who wait are told
            found = typed(error)
        with self._changed:
            # What the first device is decides what the others have to be, whichever is up first.
            while self._kind is None and not self._closing and any(map(self._may_start, self._slots[: slot.index])):
                self._changed.wait(TICK_S)
            now = time.monotonic()
            if isinstance(found, DeviceIdentity):
                self._kind = self._kind or found
                found = other_kind(self._kind, found) or found
            if isinstance(found, DeviceIdentity):
                slot.identity, slot.error = found, None
                slot.watch.started(now)
                # Whoever had the profiler before may have left it warm.
                self._scheduler.open(slot.index, found.memory_bytes)
                self._scheduler.reported(slot.index, slot.profiler.states)
            else:
                slot.error = found
                slot.watch.start_failed(str(found), now, final=found.kind in FINAL_FAULTS)
            self._sync(slot)
            self._changed.notify_all()  # who asks for health waits for this
        if slot.identity is None:
            slot.profiler.close()

    def _may_start(self, slot: Slot) -> bool:
        return slot.index in self._threads and slot.watch.state == "restarting" and slot.error is None

    def _qualify(self, slot: Slot) -> None:
        message, alarm = "", None
        try:
            message = slot.qualify()
        except Exception as error:
            alarm = Alarm("oracle", str(typed(error)))
        with self._changed:
            now = time.monotonic()
            if alarm is not None:
                slot.watch.disqualified(alarm.message, now)
                slot.watch.alarm(alarm, now)
            elif message:
                slot.watch.disqualified(message, now)
            else:
                slot.watch.qualified(now)
                self._scheduler.reported(slot.index, slot.profiler.states)
            self._sync(slot)

    def _poll(self, slot: Slot) -> None:
        alarm = slot.poll()
        with self._changed:
            now = time.monotonic()
            if alarm is not None:
                slot.watch.alarm(alarm, now)
            else:
                slot.watch.calm(now)

    # Looking after all of it.

    def _tend(self) -> None:
        """Notice what no device's thread can: stops, stuck operations, waits that no longer pay."""
        while True:
            with self._changed:
                if self._closing and not any(slot.job for slot in self._slots):
                    return
                stuck = [slot for slot in self._slots if self._is_stuck(slot)]
                if self._stopped():
                    # What was begun with a candidate is finished, unless no device is there for it or it may last.
                    kinds: list[Kind] = ["evaluate", "check"] if any(slot.watch.ready for slot in self._slots) else []
                    self._give_up_waiting("the run ends: this was not measured", *kinds)
                self._place()
            for slot in stuck:
                slot.profiler.interrupt()
            time.sleep(TICK_S)

    def _is_stuck(self, slot: Slot) -> bool:
        """Whether an operation is to be ended by force now."""
        took = time.monotonic() - slot.since
        if slot.job is None or took < self._limits.stuck_s:
            return False
        if slot.stuck is None:
            slot.stuck = Alarm("stuck", f"{slot.job.task.kind} did not end within {self._limits.stuck_s:.0f} s")
            return True
        if took > self._limits.stuck_s + ABANDON_S:
            job, slot.job = slot.job, None
            slot.watch.abandon(f"{slot.stuck.message}, nor when it was ended by force", time.monotonic())
            error = InfrastructureError("oracle_timeout", slot.stuck.message)
            self._settle(slot, job, Outcome(error=error, disturbed=slot.stuck.message))
            self._sync(slot)
        return False

    def _is_lost(self, index: int) -> bool:
        return index >= 0 and self._slots[index].watch.lost

    def _give_up_waiting(self, message: str, *kinds: Kind) -> None:
        """Tell those that wait, with operations of ``kinds`` or of all, that nothing comes of it."""
        for job in list(self._jobs.values()):
            if (not kinds or job.task.kind in kinds) and self._scheduler.withdraw(job.task.number):
                self._resolve(job, InfrastructureError("stopped", message))

    def _fail_hopeless(self) -> None:
        """Tell those whom no device will serve. A quarantined device may come back, but nobody waits for that."""
        usable = [slot for slot in self._slots if slot.watch.state != "quarantined"]
        started = self._scheduler.known & {slot.index for slot in usable}
        for job in list(self._jobs.values()):
            if not usable:
                error = gone(self._slots)
            elif not started or set(self._scheduler.admitted_by(job.task.need)) & started:
                continue
            elif len(started) < len(usable):
                self._need(len(self._slots))  # another may be larger
                continue
            else:
                error = too_large(job, self._slots)
            if self._scheduler.withdraw(job.task.number):
                self._resolve(job, error)
