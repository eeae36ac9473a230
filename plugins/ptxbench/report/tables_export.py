"""Reports as data frames (Parquet, CSV) and as what pytest-benchmark compares and draws."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ptxbench.errors import InputError
from ptxbench.files import write_whole
from ptxbench.report.cell import AtLimit, Cell, Interval, Rate
from ptxbench.report.document import LatencySamples, TurnRow
from ptxbench.report.sources import Source, load

Value = str | int | float | bool | None
Table = dict[str, type]
"""Column -> type of its values, any of which may be missing."""

TURNS: Table = {
    "run": str,
    "id": str,
    "model": str,
    "case": str,
    "arch": str,
    "variant": int,
    "variant_name": str,
    "trajectory": int,
    "turn": int,
    "origin": str,
    "outcome": str,
    "rule": str,
    "correct": bool,
    "target": str,
    "safe": str,
    "speedup": float,
    "latency_ms": float,
    "latency_low_ms": float,
    "latency_high_ms": float,
    "latency_source": str,
    "baseline_ms": float,
    "baseline": str,
    "relative_rms": float,
    "mismatch_share": float,
    "roofline_share": float,
    "useful_share": float,
    "tflops": float,
    "gbytes_per_s": float,
    "flags": str,
    "fault": str,
    "evidence_origin": str,
    "device": str,
    "measured_at": str,
    "source_sha256": str,
    "cubin_sha256": str,
    "answered_by": str,
    "reply_ended": str,
    "input_tokens": int,
    "cached_input_tokens": int,
    "output_tokens": int,
    "reasoning_tokens": int,
    "cost_usd": float,
    "call_latency_s": float,
    "failed_attempts": int,
}
"""One row for each turn."""

RATES: Table = {
    "run": str,
    "model": str,
    "case": str,
    "arch": str,
    "limit": int,
    "metric": str,
    "p": float,
    "inst": bool,
    "hits": int,
    "turns": int,
    "unneeded": int,
    "unknown": int,
    "value": float,
    "value_low": float,
    "value_high": float,
    "value_of_needed": float,
}
"""One row for each cell, limit and metric: ``correct``, ``fast_p`` (with ``p``) and ``best_speedup``. ``inst``: among
turns whose target indicator is 1. A best speedup has no hits and no turns."""


def export(runs: Sequence[str], kind: str, into: Path) -> list[str]:
    """Carry out ``ptxbench export --format KIND`` for ``csv``, ``parquet`` and ``pytest-benchmark``.

    Returns the lines to print. Raises as the functions below do.
    """
    sources = load(runs)
    written = export_benchmarks(sources, into) if kind == "pytest-benchmark" else export_frames(sources, into, kind)
    return [*(note for source in sources for note in source.notes), *written]


def export_frames(sources: Sequence[Source], into: Path, kind: str) -> list[str]:
    """Write ``turns`` and ``rates`` as ``kind``, ``csv`` or ``parquet``, into the folder ``into``.

    Returns what was written, to print. Raises InputError where that is not possible, and for Parquet without pyarrow.
    """
    tables = {
        "turns": (TURNS, [turn for source in sources for turn in _turns(source)]),
        "rates": (RATES, [rate for source in sources for cell in source.report.cells for rate in _rates(source, cell)]),
    }
    lines = []
    for name, (columns, rows) in tables.items():
        path = into / f"{name}.{kind}"
        data = _csv(columns, rows) if kind == "csv" else _parquet(columns, rows)
        _write(path, data)
        lines.append(f"{path}: {len(rows)} rows")
    return lines


def export_benchmarks(sources: Sequence[Source], into: Path) -> list[str]:
    """Write the timed turns of one report as ``pytest-benchmark compare`` and its histogram read them.

    Returns what was written, to print. Raises InputError for several reports, since comparing works on files, for one
    without any latency, and for a file that cannot be written.
    """
    if len(sources) != 1:
        raise InputError(
            f"--format pytest-benchmark: expected one run, found {len(sources)}; write one file for each and give "
            "both to `pytest-benchmark compare`"
        )
    (source,) = sources
    timed = [row for row in source.report.turns if row.samples is not None]
    if not timed:
        raise InputError(
            f"--format pytest-benchmark: expected turns with a latency, found none in {source.name}; measure some first"
        )
    _write(into, (json.dumps(_benchmark_document(source, timed), indent=1) + "\n").encode())
    return [f"{into}: {len(timed)} timed turns of {len(source.report.turns)}"]


def _turns(source: Source) -> Iterator[dict[str, Value]]:
    for row in source.report.turns:
        verdict, call, roofline = row.verdict, row.call, row.roofline
        known: dict[str, Value] = {
            "run": source.name,
            "id": row.id,
            **row.key.model_dump(),
            "variant_name": row.variant_name,
            "origin": row.origin,
            **{name: getattr(verdict, name) for name in TURNS if name in type(verdict).model_fields},
            "outcome": verdict.outcome.value,
            "target": verdict.target.value,
            "safe": verdict.safe.value,
            "correct": verdict.correct,
            "flags": " ".join(verdict.flags),
            "baseline": None if row.baseline is None else " ".join((row.baseline.library, row.baseline.version)),
            "fault": None if row.fault is None else row.fault.kind,
            "evidence_origin": row.evidence_origin,
            "device": row.device,
            "measured_at": row.measured_at,
            "source_sha256": row.source_sha256,
            "cubin_sha256": row.cubin_sha256,
        }
        if verdict.latency_interval_ms is not None:
            known["latency_low_ms"], known["latency_high_ms"] = verdict.latency_interval_ms
        if roofline is not None:
            known |= {"tflops": roofline.tflops, "gbytes_per_s": roofline.gbytes_per_s}
        if call is not None:
            known |= {
                "answered_by": call.model,
                "reply_ended": call.ended,
                **call.usage.model_dump(),
                "cost_usd": call.cost_usd,
                "call_latency_s": call.latency_s,
                "failed_attempts": call.failed_attempts,
            }
        yield known


def _rates(source: Source, cell: Cell) -> Iterator[dict[str, Value]]:
    names: dict[str, Value] = {"run": source.name, "model": cell.model, "case": cell.case, "arch": cell.arch}
    for at in cell.limits:
        for row in (*_shares(at), *_bests(at)):
            yield {**names, "limit": at.limit, **row}


def _shares(at: AtLimit) -> Iterator[dict[str, Value]]:
    yield {"metric": "correct", "inst": False, **_share(at.correct)}
    yield {"metric": "correct", "inst": True, **_share(at.target)}
    for fast in at.fast_p:
        yield {"metric": "fast_p", "p": fast.p, "inst": False, **_share(fast.any)}
        yield {"metric": "fast_p", "p": fast.p, "inst": True, **_share(fast.inst)}


def _share(rate: Rate) -> dict[str, Value]:
    counts = rate.model_dump(include={"hits", "turns", "unneeded", "unknown", "value", "value_of_needed"})
    return {**counts, **_ends(rate.interval)}


def _bests(at: AtLimit) -> Iterator[dict[str, Value]]:
    for inst, best, interval in (
        (False, at.best_speedup, at.best_speedup_interval),
        (True, at.target_best_speedup, at.target_best_speedup_interval),
    ):
        yield {"metric": "best_speedup", "inst": inst, "value": best, **_ends(interval)}


def _ends(interval: Interval | None) -> dict[str, Value]:
    return {} if interval is None else {"value_low": interval.low, "value_high": interval.high}


def _csv(columns: Table, rows: Iterable[Mapping[str, Value]]) -> bytes:
    """Missing values are empty fields; booleans are 1 and 0."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(int(value) if isinstance(value := row.get(name), bool) else value for name in columns)
    return text.getvalue().encode("utf-8", "replace")


def _parquet(columns: Table, rows: Sequence[Mapping[str, Value]]) -> bytes:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            f"--format parquet: expected pyarrow, found: {error}; install it with: pip install 'ptxbench[frames]', "
            "or use --format csv"
        ) from error
    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
    arrays = [
        pyarrow.array([row.get(name) for row in rows], type=field.type)
        for name, field in zip(columns, schema, strict=True)
    ]
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(arrays, schema=schema), sink)
    return sink.getvalue()


def _write(path: Path, data: bytes) -> None:
    try:
        write_whole(path, data)
    except OSError as error:
        raise InputError(
            f"--into {path}: expected a place that can be written, found: {error.strerror or error}; choose another"
        ) from error


def _benchmark_document(source: Source, timed: Sequence[TurnRow]) -> dict[str, Any]:
    """What pytest-benchmark stores: of the machine, what decides whether two files can be compared."""
    environment = source.report.environment
    devices = environment.devices if environment is not None else ()
    reporter = environment.reporter if environment is not None else None
    return {
        "machine_info": {
            # pytest-benchmark warns where these differ between two files.
            "cpu": {"brand": ", ".join(device.name for device in devices)},
            "gpu": [device.model_dump(exclude={"turns", "clocks"}) for device in devices],
        },
        "commit_info": {"id": reporter.commit if reporter is not None else None, "dirty": None},
        "benchmarks": [_benchmark(row, row.samples) for row in timed if row.samples is not None],
        "datetime": max(row.measured_at or "" for row in timed),
        "version": "5.1.0",
    }


def _benchmark(row: TurnRow, samples: LatencySamples) -> dict[str, Any]:
    """One turn as one benchmark; times in seconds. Turns of one case and architecture are a group."""
    key = row.key
    return {
        "group": f"{key.case}-{key.arch}",
        "name": f"test_speedup[{row.id}]",
        "fullname": f"ptx_tests/test_turns.py::test_speedup[{row.id}]",
        "params": {"model": key.model, "variant": key.variant, "trajectory": key.trajectory, "turn": key.turn},
        "param": row.id,
        "extra_info": {
            "outcome": row.verdict.outcome.value,
            "target": row.verdict.target.value,
            "latency_ms": row.verdict.latency_ms,
            "latency_source": row.verdict.latency_source,
            "baseline_ms": row.verdict.baseline_ms,
            "speedup": row.verdict.speedup,
        },
        "options": {
            "disable_gc": False,
            "timer": row.verdict.latency_source or "",
            "min_rounds": samples.count,
            "max_time": 0.0,
            "min_time": 0.0,
            "warmup": True,
        },
        "stats": _stats(samples),
    }


def _stats(samples: LatencySamples) -> dict[str, Any]:
    def seconds(value: float) -> float:
        return value / 1e3

    return {
        "min": seconds(samples.min_ms),
        "max": seconds(samples.max_ms),
        "mean": seconds(samples.mean_ms),
        "stddev": seconds(samples.stddev_ms),
        "rounds": samples.count,
        "median": seconds(samples.median_ms),
        "iqr": seconds(samples.q3_ms - samples.q1_ms),
        "q1": seconds(samples.q1_ms),
        "q3": seconds(samples.q3_ms),
        "iqr_outliers": samples.outliers,
        "stddev_outliers": samples.beyond_stddev,
        "outliers": f"{samples.beyond_stddev};{samples.outliers}",
        "ld15iqr": seconds(samples.whisker_low_ms),
        "hd15iqr": seconds(samples.whisker_high_ms),
        "ops": 1 / seconds(samples.mean_ms) if samples.mean_ms else 0.0,
        "total": seconds(samples.mean_ms * samples.count),
        "iterations": 1,
    }
