"""Own strict models of the public FlashInfer-Trace schema, and its files. Knows nothing of benchmarks or devices."""

from ptxbench.trace.collection import (
    load_definition,
    load_solution,
    load_traces,
    load_workloads,
    save_definition,
    save_solution,
    save_traces,
    save_workloads,
)
from ptxbench.trace.definition import Axis, AxisConst, AxisVar, Definition, DType, TensorSpec
from ptxbench.trace.faults import FileError
from ptxbench.trace.solution import Binding, BuildSpec, Solution, SourceFile, SourceLanguage
from ptxbench.trace.trace import (
    Correctness,
    Environment,
    Evaluation,
    EvaluationStatus,
    KernelProfile,
    Performance,
    Trace,
)
from ptxbench.trace.workload import RandomInput, SafetensorsInput, ScalarInput, Workload, WorkloadInput

__all__ = [
    "Axis",
    "AxisConst",
    "AxisVar",
    "Binding",
    "BuildSpec",
    "Correctness",
    "DType",
    "Definition",
    "Environment",
    "Evaluation",
    "EvaluationStatus",
    "FileError",
    "KernelProfile",
    "Performance",
    "RandomInput",
    "SafetensorsInput",
    "ScalarInput",
    "Solution",
    "SourceFile",
    "SourceLanguage",
    "TensorSpec",
    "Trace",
    "Workload",
    "WorkloadInput",
    "load_definition",
    "load_solution",
    "load_traces",
    "load_workloads",
    "save_definition",
    "save_solution",
    "save_traces",
    "save_workloads",
]
