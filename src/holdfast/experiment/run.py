"""An experiment, run piece by piece: what fails is a line that says so, the others go on."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast.audit.gates import GateVerdict
from holdfast.config.parser import command_line
from holdfast.core.errors import HoldfastError, OutputError, UnknownName, one_line
from holdfast.core.sources import versions
from holdfast.engine.manifest import now
from holdfast.experiment.bench import Bench, Piece
from holdfast.experiment.cli import ExperimentOptions
from holdfast.experiment.pieces import Keep, check_piece, run_piece
from holdfast.experiment.plan import Experiment, Verify
from holdfast.experiment.result import Findings, Line, experiment_folder, save


def pieces_of(experiment: Experiment, only: Sequence[str] = ()) -> tuple[Piece, ...]:
    """The pieces in the order of the file: models, then data, then conditions; a specification once a model.

    `only` names conditions. Evaluations bring the first one with them, as their Δ is to that.
    """
    known = [condition.name for condition in experiment.conditions]
    for name in only:
        if name not in known:
            raise UnknownName("condition", name, known)
    wanted = set(only or known)
    evaluations = [c.name for c in experiment.conditions if c.do == "evaluate"]
    if wanted & set(evaluations):
        wanted.add(evaluations[0])
    found = []
    for model in experiment.models:
        chosen = [condition for condition in experiment.conditions if condition.name in wanted]
        for data in experiment.data:
            found += [Piece(model, data, one) for one in chosen if not isinstance(one.work, Verify)]
        found += [
            Piece(model, None, c, spec) for c in chosen if isinstance(c.work, Verify) for spec in c.work.spec
        ]
    return tuple(found)


def execute(
    bench: Bench,
    only: Sequence[str] = (),
    begin: Callable[[Piece, int, int], None] = lambda piece, number, of: None,
    keep: Keep = lambda piece, made, line: None,
    command: str = "",
) -> Findings:
    """The findings, saved after every piece; `keep` writes a piece's page, `begin` hears of each."""
    began = time.perf_counter()
    pieces = pieces_of(bench.experiment, only)
    folder = experiment_folder(bench.experiment, bench.runs)
    found = Findings(
        bench.experiment,
        (),
        len(pieces),
        now(),
        command=command or command_line(ExperimentOptions(file=bench.experiment.file)),
        versions=versions(),
    )
    save(found, folder)
    for number, piece in enumerate(pieces, 1):
        begin(piece, number, len(pieces))
        line = _line(bench, piece, keep)
        seconds = round(time.perf_counter() - began, 3)
        found = replace(found, lines=(*found.lines, line), seconds=seconds)
        save(found, folder)
    return found


def _line(bench: Bench, piece: Piece, keep: Keep) -> Line:
    began = time.perf_counter()
    try:
        line, found = run_piece(bench, piece)
        page = keep(piece, found, line)
        line = replace(line, page="" if page is None else str(page))
    except OutputError:
        raise  # a folder that cannot be written to fails all that follow too
    except Exception as problem:  # noqa: BLE001 - whatever ends one piece must not end the others
        reason = f"internal error, please report it ({type(problem).__name__}: {problem})"
        words = " ".join((str(problem) if isinstance(problem, HoldfastError) else reason).split())
        gates = bench.experiment.gates if piece.condition.do == "audit" else ()  # they have failed with it
        judged = tuple(GateVerdict(gate, None, True, "not measured: the audit failed") for gate in gates)
        line = bench.line(piece, state="failed", words=words, gates=judged)
    return replace(line, seconds=round(time.perf_counter() - began, 3))


def planned(bench: Bench, only: Sequence[str] = ()) -> tuple[Line, ...]:
    """A line for each piece with its number of images, or why it would fail; nothing is run."""
    found = []
    for piece in pieces_of(bench.experiment, only):
        try:
            found.append(bench.line(piece, images=check_piece(bench, piece)))
        except HoldfastError as problem:
            found.append(bench.line(piece, state="failed", words=one_line(problem)))
    return tuple(found)
