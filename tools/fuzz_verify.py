"""Look for wrong proofs: random small networks, each with a property that one of its inputs violates.

    make fuzz-verify SECONDS=600
    python tools/fuzz_verify.py [--seconds 600] [--nets N] [--first 0] [--limit 1.0] [--jobs 2]

Network N is a random chain around one node of the operator table of the tests
(`tests/helpers/operator_variants.py`), in any opset that ONNX Runtime runs. Its inputs come from a small
box, of which a few are free. The lowest output among many evaluations in ONNX Runtime is attained, so the
property "the output is never at most that value" does not hold. The verifier is asked with its
counterexamples taken away: `holds` is wrong; restricted to real arithmetic it is wrong if that input
violates the property there too. A second question, a bit below the lowest value, is one that the verifier
should mostly prove; it shows that proofs are attempted at all, and how many end in time.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, defs, helper, numpy_helper

from helpers.operator_variants import VARIANTS, Variant
from holdfast.core.model import Network
from holdfast.core.property import Budget, InputBox, LinearConstraints, Property, Verdict
from holdfast.graph.ir import evaluate
from holdfast.graph.lower import lower_onnx
from holdfast.verify import falsify
from holdfast.verify.problem import EngineResult, VerificationProblem
from holdfast.verify.run import verify

OPSETS = (7, 22)
CURVES = ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Softplus", "Abs", "Elu", "Sin")
ATTEMPTS = 20  # to find a variant and a version that ONNX Runtime runs
FREE = 4  # inputs at most
SAMPLES = 400  # evaluations of each network
BELOW = 0.05  # of the range of outputs: how far the second threshold lies below the lowest value


@dataclass(frozen=True, eq=False)
class Question:
    """A network, a box of inputs, and a row of the outputs with its lowest attained and highest value."""

    operator: str
    attributes: str
    model: Any
    box: InputBox
    row: np.ndarray
    lowest: float
    highest: float
    point: np.ndarray  # where the lowest value is attained

    def attained_exactly(self) -> bool:
        """Whether the lowest value is attained in real arithmetic too, clear of the rounding of float64."""
        value = float(evaluate(lower_onnx(self.model), self.point[None].astype(float))[0] @ self.row)
        return value <= self.lowest - 1e-9 * (1 + abs(self.lowest))

    @property
    def below(self) -> float:
        """A value that the row does not take, as far as the evaluations tell."""
        return self.lowest - BELOW * (self.highest - self.lowest) - 1e-3 * (1 + abs(self.lowest))


@dataclass(frozen=True)
class Outcome:
    """The answers about one network; `wrong` says why an answer is no truth."""

    number: int
    operator: str
    attained: str  # the verdict on the property that does not hold
    below: str = ""  # the verdict on the one that should
    wrong: str = ""


def versions(operator: str) -> list[int]:
    """The opsets in which the definition of the operator changes, and the newest that is asked."""
    found = {
        schema.since_version
        for schema in defs.get_all_schemas_with_history()
        if schema.domain == "" and schema.name == operator and schema.since_version <= OPSETS[1]
    }
    return sorted({max(v, OPSETS[0]) for v in found} | {OPSETS[1]})


def network(rng: np.random.Generator, operator: str, variant: Variant, opset: int) -> onnx.ModelProto:
    """A random chain: scaled input, curve, the node, curve, one or two dense layers."""
    nodes, weights, at = [], {}, "x"

    def add(kind: str, *constants: Any, out: str = "", **attributes: Any) -> str:
        names = [f"w{len(weights) + n}" for n in range(len(constants))]
        weights.update(zip(names, map(np.asarray, constants), strict=True))
        outs = [out or f"t{len(nodes)}"]
        nodes.append(helper.make_node(kind, [at, *names], outs, **attributes))
        return outs[0]

    def values(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    if rng.random() < 0.5 and variant.low < 0:
        at = add("Mul", np.float32(rng.choice([0.3, 1.0, 3.0])))
        at = add("Add", values(*variant.shape))
        if rng.random() < 0.5:
            at = add(str(rng.choice(CURVES)))
    names = [f"c{i}" if c is not None else "" for i, c in enumerate(variant.constants)]
    weights |= {name: np.asarray(c) for name, c in zip(names, variant.constants, strict=True) if name}
    if variant.before is not None:
        weights["b"] = np.asarray(variant.before)
    given = [at, *names] if variant.before is None else ["b", at, *names]
    outs = [f"y{i}" for i in range(variant.outputs)]
    nodes.append(helper.make_node(operator, given, outs, **variant.attributes))
    at = outs[int(rng.integers(len(outs)))]
    if rng.random() < 0.5:
        at = add(str(rng.choice(CURVES)))
    at = add("Reshape", np.array([1, -1]))
    model = _model(nodes, variant, weights, at, opset)
    size = len(_run(model, np.zeros((1, int(np.prod(variant.shape))), np.float32))[0])
    for _ in range(int(rng.integers(1, 3))):
        width = int(rng.integers(2, 7))
        at = add("MatMul", values(size, width) / np.sqrt(size, dtype=np.float32))
        at = add("Add", values(1, width))
        at, size = add(str(rng.choice(CURVES))), width
    at = add("MatMul", values(size, 2), out="last")
    return _model(nodes, variant, weights, at, opset)


def _model(nodes: list[Any], variant: Variant, weights: dict[str, Any], out: str, opset: int) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, variant.shape)],
        [onnx.ValueInfoProto(name=out)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def _run(model: Any, points: np.ndarray) -> np.ndarray:
    """The outputs of ONNX Runtime for flat inputs, one by one."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    shape = session.get_inputs()[0].shape
    return np.stack([session.run(None, {"x": p.reshape(shape)})[0].ravel() for p in points]).astype(float)


def box(rng: np.random.Generator, variant: Variant) -> tuple[np.ndarray, np.ndarray]:
    """A random box: a few free inputs of random widths."""
    size = int(np.prod(variant.shape))
    middle = rng.uniform(variant.low, variant.high, size)
    width = np.zeros(size)
    free = rng.permutation(size)[: int(rng.integers(1, min(FREE, size) + 1))]
    width[free] = 10.0 ** rng.uniform(-3, 0, len(free)) * (variant.high - variant.low) / 2
    ends = np.clip([middle - width, middle + width], variant.low, variant.high)
    return ends[0].astype(np.float32), ends[1].astype(np.float32)


def points_in(rng: np.random.Generator, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The middle, corners and random points of a box, half of them on a face."""
    share = rng.random((SAMPLES, len(low)))
    share[: SAMPLES // 2] = np.where(
        rng.random((SAMPLES // 2, len(low))) < 0.5, share[: SAMPLES // 2].round(), 0.5
    )
    points = low + (high - low) * share
    return np.clip(points.astype(np.float32), low, high)


def lowest(rng: np.random.Generator, model: Any, low: np.ndarray, high: np.ndarray, row: np.ndarray) -> Any:
    """The lowest value of the row that was attained, the highest, and the lowest's point."""
    points = points_in(rng, low, high)
    values = _run(model, points) @ row
    best = points[int(values.argmin())]
    near = best + (high - low) * rng.normal(scale=0.05, size=(SAMPLES // 4, len(low)))
    points = np.concatenate([points, np.clip(near.astype(np.float32), low, high)])
    values = np.concatenate([values, _run(model, points[SAMPLES:]) @ row])
    return float(values.min()), float(values.max()), points[int(values.argmin())]


def without_counterexamples() -> None:
    """Take the verifier's counterexamples away, so that only a proof can end its search."""

    def none(_self: VerificationProblem) -> Callable[[np.ndarray], np.ndarray]:
        return lambda points: np.zeros(len(points), bool)

    VerificationProblem.violates = property(none, lambda _self, _value: None)  # type: ignore[assignment]
    falsify.falsify = lambda *_: EngineResult("unknown", falsify.ENGINE)


def ask(path: Path, threat: InputBox, row: np.ndarray, bound: float, limit: float) -> Verdict:
    """The verdict on "the row is never at most the bound"."""
    unsafe = (LinearConstraints(row[None], np.array([bound])),)
    return verify(Property(Network(path.stem, path), threat, unsafe), Budget(seconds=limit))


def question(rng: np.random.Generator, operator: str) -> Question:
    """A random question about that operator. Raise an error if ONNX Runtime does not run the network."""
    variant = VARIANTS[operator][int(rng.integers(len(VARIANTS[operator])))]
    opset = int(rng.choice(versions(operator)))
    model = network(rng, operator, variant, opset)
    low, high = box(rng, variant)
    row = np.array([1.0, rng.choice([0.0, -1.0, 0.5])])
    least, most, point = lowest(rng, model, low, high, row)
    if not np.isfinite([least, most]).all():
        raise ValueError("the outputs are not finite")
    ends = (end.astype(float).reshape(variant.shape) for end in (low, high))
    attributes = str(dict(variant.attributes))
    return Question(f"{operator}-{opset}", attributes, model, InputBox(*ends), row, least, most, point)


def tried(number: int, limit: float, keep: Path) -> Outcome:
    """The outcome for network `number`."""
    warnings.simplefilter("ignore")
    operator = sorted(VARIANTS)[number % len(VARIANTS)]
    rng = np.random.default_rng([number, 25])
    for _ in range(ATTEMPTS):
        with suppress(Exception):  # onnxruntime's errors have no common class
            asked = question(rng, operator)
            break
    else:
        return Outcome(number, operator, "not run")
    without_counterexamples()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        onnx.save(asked.model, path)
        verdict = ask(path, asked.box, asked.row, asked.lowest, limit)
        below = _word(ask(path, asked.box, asked.row, asked.below, limit))
    found = Outcome(number, asked.operator, _word(verdict), below)
    if verdict.status != "holds" or (verdict.real_only and not asked.attained_exactly()):
        return found
    keep.mkdir(parents=True, exist_ok=True)
    onnx.save(asked.model, keep / f"{number}.onnx")
    ends = {"low": asked.box.lower, "high": asked.box.upper, "row": asked.row, "point": asked.point}
    np.savez(keep / f"{number}.npz", **ends, bound=asked.lowest)
    where = f"{asked.attributes}, threshold {asked.lowest!r} attained at {asked.point.tolist()}"
    return replace(found, wrong=f"{verdict.engine} proves what an input violates: {where}")


def _word(verdict: Verdict) -> str:
    if verdict.status == "holds" and verdict.real_only:
        return "holds for real arithmetic"
    return "refused" if "no proof was attempted" in verdict.note else verdict.status


def outcomes(
    numbers: Iterator[int], seconds: float, limit: float, jobs: int, keep: Path | None
) -> Iterator[Outcome]:
    """The outcomes in order, until the time is up."""
    end = time.monotonic() + seconds
    with ProcessPoolExecutor(jobs) as pool:
        while time.monotonic() < end and (batch := list(itertools.islice(numbers, 16 * jobs))):
            yield from pool.map(tried, batch, [limit] * len(batch), [keep] * len(batch))


def main() -> int:
    """Try networks until the time is up; 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--nets", type=int, help="end after this many networks")
    parser.add_argument("--first", type=int, default=0, help="the number of the first network")
    parser.add_argument("--limit", type=float, default=1.0, help="seconds for each question")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--keep", type=Path, default=Path("build/fuzz-verify"), help="folder for wrong answers"
    )
    options = parser.parse_args()
    numbers = (
        itertools.count(options.first)
        if options.nets is None
        else iter(range(options.first, options.first + options.nets))
    )
    attained: Counter[str] = Counter()
    below: Counter[str] = Counter()
    wrong = 0
    for outcome in outcomes(numbers, options.seconds, options.limit, options.jobs, options.keep):
        attained[outcome.attained] += 1
        below[outcome.below] += bool(outcome.below)
        if outcome.wrong:
            wrong += 1
            print(f"WRONG: network {outcome.number}, {outcome.operator}: {outcome.wrong}", flush=True)
        if attained.total() % 200 == 0:
            print(f"{attained.total()} networks, {wrong} wrong", flush=True)
    asked = attained.total() - attained["not run"]
    print(f"{attained.total()} networks, {asked} asked, {wrong} wrong proofs")
    for title, counter in (("lowest value attained", attained), ("below the lowest value", +below)):
        print(f"  {title}: " + ", ".join(f"{word} {count}" for word, count in counter.most_common()))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
