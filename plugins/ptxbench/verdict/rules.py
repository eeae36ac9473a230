"""Identifiers of every rule and flag. They are stable: stored verdicts and reports name them.

docs/verdict-rules.md explains each one; a test holds the two together.
"""

from __future__ import annotations

from enum import StrEnum


class Rule(StrEnum):
    """What decided the outcome of a turn."""

    EXTRACTION = "extraction.no_code"
    INFRASTRUCTURE = "infrastructure.fault"
    SCREEN_LIBRARY_HEADER = "screen.library_header"
    SCREEN_FOREIGN_HEADER = "screen.foreign_header"
    SCREEN_LINE_DIRECTIVE = "screen.line_directive"
    SCREEN_LIBRARY_FUNCTION = "screen.library_function"
    SCREEN_LIBRARY_SYMBOL = "screen.library_symbol"
    SCREEN_DYNAMIC_LOADING = "screen.dynamic_loading"
    SCREEN_DEVICE_CODE_LOADING = "screen.device_code_loading"
    SCREEN_DRIVER_ENTRY_POINT = "screen.driver_entry_point"
    SCREEN_EMBEDDED_DEVICE_CODE = "screen.embedded_device_code"
    SCREEN_EMBEDDED_FILE = "screen.embedded_file"
    SCREEN_PROCESS_CREATION = "screen.process_creation"
    SCREEN_HOST_CALLBACK = "screen.host_callback"
    SCREEN_UNREADABLE_OBJECT = "screen.unreadable_object"
    SCREEN_OTHER = "screen.other"
    SCREEN_FOREIGN_KERNEL = "screen.foreign_kernel"
    SCREEN_FOREIGN_MODULE = "screen.foreign_module"
    SCREEN_FOREIGN_LIBRARY = "screen.foreign_library"
    COMPILE_ERROR = "compile.error"
    COMPILE_TIMEOUT = "compile.timeout"
    EVIDENCE_NONE = "evidence.none"
    EVIDENCE_HASH_MISMATCH = "evidence.hash_mismatch"
    EVIDENCE_DEFENCES_OFF = "evidence.defences_off"
    EVIDENCE_TOLERANCE = "evidence.tolerance"
    EVIDENCE_INCOMPLETE = "evidence.incomplete"
    RUN_TIMEOUT = "run.timeout"
    RUN_LOAD = "run.load_error"
    RUN_ERROR = "run.error"
    RUN_CRASH = "run.crash"
    MEMORY_GUARD = "memory.guard"
    MEMORY_MEMCHECK = "memory.memcheck"
    INPUTS_MODIFIED = "check.inputs_modified"
    SHAPE = "check.shape"
    DTYPE = "check.dtype"
    MISMATCH = "check.mismatch"
    TIMED_ITERATION = "check.timed_iteration"
    PASSED = "check.passed"
    IMPORTED = "imported.label"


class TargetRule(StrEnum):
    """What decided the target indicator."""

    NO_OBJECT = "target.no_object"
    INFRASTRUCTURE = "target.infrastructure"
    NOT_INSPECTED = "target.not_inspected"
    ABSENT = "target.absent"
    NO_EVIDENCE = "target.no_evidence"
    UNDEFINED_BEHAVIOUR = "target.undefined_behaviour"
    NOT_PROFILED = "target.not_profiled"
    NOT_RUN = "target.not_run"
    TOOL_FAILED = "target.tool_failed"
    FOREIGN_KERNEL = "target.foreign_kernel"
    DIFFERS_UNDER_PROFILER = "target.differs_under_profiler"
    NOT_EXECUTED = "target.not_executed"
    EXECUTED = "target.executed"
    IMPORTED = "target.imported"


class Flag(StrEnum):
    """Remarks that leave the outcome as it is; some of them withhold the speedup."""

    BASELINE_DRIFT = "baseline_drift"
    CLOCK_DISAGREEMENT = "clock_disagreement"
    DIFFERS_UNDER_PROFILER = "differs_under_profiler"
    DISTURBED = "disturbed"
    FAMILY_MISMATCH = "family_mismatch"
    FAMILY_UNQUALIFIED = "family_unqualified"
    IMPLAUSIBLE = "implausible"
    LOADED_CODE_UNKNOWN = "loaded_code_unknown"
    LOW_PRECISION = "low_precision"
    NO_BASELINE = "no_baseline"
    STRAY_ACTIVITY = "stray_activity"
    TIMING_INCOMPLETE = "timing_incomplete"
    TIMING_UNCHECKED = "timing_unchecked"
