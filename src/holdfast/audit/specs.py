"""VNN-LIB specifications of the model: decided on the original file, then rechecked on other runtimes."""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.audit.result import Proof, Recheck, RecheckAnswer
from holdfast.core import fingerprint
from holdfast.core.errors import InputError, one_line
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline, Run
from holdfast.core.property import Property, Verdict, confirm
from holdfast.core.registry import lookup
from holdfast.core.types import Floats
from holdfast.engine.cells import CellResult, MissingCells, Setup, Work, run
from holdfast.engine.executor import Progress, silent
from holdfast.engine.store import Store
from holdfast.graph.inspect import read_proto
from holdfast.stages.deployed import DeployedInference
from holdfast.verify.problem import InputDomain, domain_of, first_float, last_float
from holdfast.verify.replay import runner_of
from holdfast.verify.vnncomp.instance import abandon, begin, verify_command, wait
from holdfast.verify.vnncomp.instances import Instance
from holdfast.verify.vnncomp.results import read_counterexample

POINTS = 200  # of a specification's box, run on each runtime
UNTOUCHED = ("onnxruntime", DeployedInference())  # infer stages that run the user's file as it is


@dataclass(frozen=True, eq=False)
class SpecVerdict:
    """A specification with its answer, and the whole input that violates it if there is one."""

    proof: Proof
    question: Property
    witness: NDArray[Any] | None = None


@dataclass(frozen=True)
class Specification:
    """A specification of the model, and how many others come after it."""

    name: str
    path: Path
    question: Property
    after: int


@dataclass(frozen=True)
class SpecificationWork(Work[Specification, None]):
    """The decision of each specification in a process of its own, which is ended when its time is over."""

    model: Model
    end: float  # of time.monotonic
    jobs: int

    def setups(self) -> list[Setup]:
        """The model."""
        return [Setup("verify", self.model.sha256)]

    def contents(self, item: Specification) -> list[str]:
        """The content of the specification's file."""
        return [fingerprint.of_file(item.path)]

    def open(self, threads: int) -> None:
        """Open nothing: each decision is a process of its own."""

    def compute(self, state: None, batch: Sequence[MissingCells]) -> Iterator[CellResult]:
        """The answers. Only what is decided is stored."""
        for position, (item, _) in enumerate(batch):
            share = max(0.0, self.end - time.monotonic()) / (1 + item.after)
            proof, witness = _decide(item, share, self.jobs)
            cell = {"proof": asdict(proof), "witness": witness}
            yield CellResult(position, 0, cell, stored=proof.answer != "unknown")


def decide_specs(
    model: Model,
    files: Sequence[Path],
    seconds: float,
    store: Store,
    jobs: int = 1,
    progress: Progress = silent,
) -> tuple[SpecVerdict, ...]:
    """The answers with their witnesses; those decided before are read from the store.

    Every file is read before the first is decided: InputError if one is none of this network's. Each gets an
    equal part of the time that is left; what is not decided by then is `unknown`.
    """
    questions = zip(files, questions_of(model, files).items(), strict=True)
    items = [
        Specification(name, path, question, len(files) - number)
        for number, (path, (name, question)) in enumerate(questions, 1)
    ]
    work = SpecificationWork(model, time.monotonic() + seconds, jobs)
    verdicts = []
    for plain, item in zip(run(work, items, store, progress=progress).read(), items, strict=True):
        proof, witness = Proof(**{**plain["proof"], "threat": item.name}), plain["witness"]
        if witness is not None:
            domain = domain_of(item.question)
            witness = np.array(witness, domain.dtype).reshape(domain.box.lower.shape)
        verdicts.append(SpecVerdict(proof, item.question, witness))
    return tuple(verdicts)


def questions_of(model: Model, files: Sequence[Path]) -> dict[str, Property]:
    """The property of each specification by its name; InputError if one is none of this network's."""
    from holdfast.verify.vnnlib import property_of, read_vnnlib

    names = [path.name for path in files]  # the whole path where two have the same
    named = {path.name if names.count(path.name) == 1 else str(path): path for path in files}
    questions = {name: property_of(read_vnnlib(path), model) for name, path in named.items()}
    if len(questions) < len(files):
        raise InputError("--spec: expected each specification once, got a duplicate")
    return questions


def _decide(item: Specification, seconds: float, jobs: int) -> tuple[Proof, list[float] | None]:
    """The answer, and the flat input that violates the specification if there is one."""
    verdict = _verdict(item.path, item.question, seconds, jobs)
    words = ("verify", str(item.question.model.path), str(item.path), "--timeout", f"{seconds:.0f}")
    violated = verdict.status == "violated" and verdict.witness is not None
    witness = np.asarray(verdict.witness).ravel().tolist() if violated else None
    trouble = {"timeout": "not decided in time", "error": "failed"}.get(verdict.status, "")
    proof = Proof(
        item.name,
        "",
        # What may be concluded: no time, a doubt and a failure are all `unknown`.
        answer=verdict.status if verdict.status in ("holds", "violated") else "unknown",
        engine=verdict.engine,
        seconds=round(verdict.seconds, 3),
        margin=verdict.bound if verdict.status == "holds" else None,
        note="; ".join(filter(None, (trouble, verdict.note))),
        command=shlex.join(["holdfast", *words]),
    )
    return proof, witness


def _verdict(path: Path, question: Property, seconds: float, jobs: int) -> Verdict:
    """What `holdfast verify` says in a process of its own; a witness counts after it was replayed here."""
    network = question.model.path
    files = {"network_path": network, "spec_path": path, "folder": path.parent}
    instance = Instance("audit", str(network), str(path), seconds, **files)
    running = begin([*verify_command(), "--jobs", str(jobs)], instance)
    try:
        ((_, outcome),) = wait([running])
    except BaseException:
        abandon([running])
        raise
    engine, witness = outcome.engine or "none", None
    if outcome.status == "violated":
        domain = domain_of(question)
        try:
            witness = read_counterexample(outcome.witness).inputs.reshape(domain.box.lower.shape)
        except (InputError, ValueError) as problem:
            return Verdict("error", engine, outcome.seconds, note=one_line(problem))
    bound, note = outcome.margin, outcome.note
    verdict = Verdict(outcome.status, engine, outcome.seconds, witness=witness, bound=bound, note=note)
    if witness is None:
        return verdict
    verdict = confirm(question, verdict, runner_of(question, domain).run, domain.dtype)
    return replace(verdict, witness=witness.astype(domain.dtype))


def recheck_specs(
    model: Model,
    answers: Sequence[SpecVerdict],
    deployments: Mapping[str, Pipeline],
    seconds: float,
    *,
    points: int = POINTS,
    seed: int = 0,
) -> tuple[Recheck, ...]:
    """Every decided specification asked of each runtime or precision: the condition, on its own outputs.

    A witness is replayed first. Then points of the box are run: its corners and centre, random ones, and
    steps from whichever comes nearest to breaking it. A point that breaks it (twice) is the answer, else
    it is `unknown`: no number of points proves anything. One that leaves the network alone has no row.
    """
    rows: list[Recheck] = []
    decided = [verdict for verdict in answers if verdict.proof.answer != "unknown"]
    touched = {name: pipeline for name, pipeline in deployments.items() if pipeline.infer not in UNTOUCHED}
    end, todo = time.monotonic() + seconds, len(decided) * len(touched)
    for name, pipeline in touched.items():
        run, problem = None, ""
        try:
            run = lookup("infer", pipeline.infer)(model, 1)
        except Exception as error:  # noqa: BLE001 - runtimes raise errors of their own kinds
            problem = f"cannot be opened: {one_line(error)}"
        for verdict in decided:
            share = max(0.0, end - time.monotonic()) / max(1, todo - len(rows))
            rng = np.random.default_rng([seed, len(rows)])
            proof, answer = verdict.proof, RecheckAnswer("unknown", 0, problem)
            if run is not None:
                answer = _search(run, verdict, points, time.monotonic() + share, rng)
            rows.append(Recheck(proof.threat, proof.image, name, proof.answer, **vars(answer)))
    return tuple(rows)


def _search(run: Run, spec: SpecVerdict, points: int, end: float, rng: np.random.Generator) -> RecheckAnswer:
    """What the points of a specification's box say of a runtime; the first is run whatever the time."""
    question, count, doubt = spec.question, 0, ""
    try:
        if not question.unsafe:
            return RecheckAnswer("unknown", 0, "the set of inputs is empty")
        domain = domain_of(question)
        names = [port.name for port in read_proto(question.model.path).graph.output]
        sampler = _BoxSampler(domain, question, spec.witness, rng)
        for point in sampler.points(points):
            output = _output(run, point, names)
            count += 1
            if not np.isfinite(output).all():
                doubt = "a point has outputs that are not finite"
                continue
            if question.violated_by(output, point):
                again = _output(run, point, names)  # a point counts if it violates the property twice
                if np.isfinite(again).all() and question.violated_by(again, point):
                    witness = spec.witness is not None and count == 1
                    name = "the counterexample" if witness else f"point {count}"
                    return RecheckAnswer("violated", count, f"by {name}")
            sampler.note(point, output)
            if time.monotonic() > end:
                break
    except Exception as problem:  # noqa: BLE001 - whatever it is, nothing is known
        return RecheckAnswer("unknown", count, one_line(problem))
    lost = "the counterexample does not violate it here; " if spec.witness is not None else ""
    note = f"{lost}none of {count} points of the box violates it"
    return RecheckAnswer("unknown", count, "; ".join(filter(None, (note, doubt))))


def _output(run: Run, point: NDArray[Any], names: Sequence[str]) -> Floats:
    outputs = run(point)
    missing = [name for name in names if name not in outputs]
    if missing:
        raise InputError(f"expected an output {missing[0]!r}, got {', '.join(outputs)}")
    return np.concatenate([np.asarray(outputs[name], np.float64).ravel() for name in names])


class _BoxSampler:
    """Points of a box, half of them steps from the one nearest to breaking the property."""

    def __init__(
        self, domain: InputDomain, question: Property, witness: NDArray[Any] | None, rng: np.random.Generator
    ) -> None:
        self.domain, self.question, self.witness, self.rng = domain, question, witness, rng
        boxes = list({id(rows.within): rows.within for rows in question.unsafe}.values())
        sides = [domain.within(box) for box in boxes]
        self.sides = [(first_float(low, domain.dtype), last_float(high, domain.dtype)) for low, high in sides]
        self.best: tuple[float, NDArray[Any]] | None = None

    def points(self, count: int) -> Iterator[NDArray[Any]]:
        """`count` whole inputs: the witness, corners and centres, then by turns random ones and steps."""
        given = 0
        if self.witness is not None:
            given += 1
            yield self.witness
        for low, high in self.sides[:count]:
            for free in (low, high, _between(low, high, np.full(low.shape, 0.5))):
                given += 1
                yield self.domain.whole(free[None])[0]
        for at in range(given, count):
            low, high = self.sides[int(self.rng.integers(len(self.sides)))]
            parts = self.rng.random(low.shape)
            if self.rng.random() < 0.5:
                parts = parts.round()  # a corner: most properties break at one first
            free = _between(low, high, parts)
            if at % 2 == 0 and self.best is not None:  # a step: some inputs of the best point are redrawn
                keep = self.rng.random(low.shape) >= self.rng.choice([0.02, 0.1, 0.5])
                free = np.clip(np.where(keep, self.best[1], free), low, high).astype(low.dtype)
            yield self.domain.whole(free[None])[0]

    def note(self, point: NDArray[Any], output: Floats) -> None:
        """Keep the point if it comes nearer to breaking the property than all before."""
        slack = min((rows.slack(output, point) for rows in self.question.unsafe), default=np.inf)
        if self.best is None or slack < self.best[0]:
            self.best = slack, point.ravel()[self.domain.free]


def _between(low: NDArray[Any], high: NDArray[Any], parts: Floats) -> NDArray[Any]:
    """The points that lie at these parts of the way, never outside."""
    mixed = low.astype(np.float64) + parts * (high.astype(np.float64) - low)
    points: NDArray[Any] = np.clip(mixed.astype(low.dtype), low, high)
    return points
