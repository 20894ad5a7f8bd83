"""The model as it is deployed: rewrites of its graph, then a runtime. Both are chosen by name and combine."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import ImageError, InputError
from holdfast.core.model import Model
from holdfast.core.pipeline import Infer, Pipeline, Run, open_preparation
from holdfast.core.registry import lookup, part
from holdfast.core.sources import code_of, installed
from holdfast.core.types import Tensor
from holdfast.graph.artifacts import Artifact, cached_artifact
from holdfast.graph.feeds import fix_feeds
from holdfast.graph.rewrite.types import CannotRewrite, RewriteContext, RewriteResult
from holdfast.graph.session import BUILDS, providers_named
from holdfast.stages.infer import batch_of, batched, open_onnx, source_of

# Rewrites that change sizes precede those that adapt to them; quantisation applies to the final graph.
BEFORE = ("decode", "colour", "fit", "resize", "normalise")  # stages that make a tensor of an image
LIBRARIES = ("numpy", "pillow", "opencv-python-headless", "av", "simplejpeg")  # those they mostly use
ORDER = {"ceil": 1, "upsample": 2, "precision": 9}  # families not named come between upsample and precision


class CalibrationCache(dict[str, Any]):
    """Calibration statistics of graphs, by their hashes. Pickled empty: each process has its own."""

    def __reduce__(self) -> tuple[type[CalibrationCache], tuple[()]]:
        return CalibrationCache, ()


@dataclass(frozen=True)
class Calibration:
    """Held-out images and the pipeline that converts them to tensors, for integer precisions."""

    entries: tuple[Entry, ...]
    pipeline: Pipeline
    lack: str = ""  # why there are none, and what to do
    observed: CalibrationCache = field(default_factory=CalibrationCache, compare=False, repr=False)

    def key(self) -> str:
        """A hash of the images, independent of their location, and of their preparation."""
        stages = [lookup(kind, getattr(self.pipeline, kind)) for kind in BEFORE]
        return fingerprint.of([[_content(e) for e in self.entries], stages, installed(LIBRARIES)])

    def tensors(self, model: Model) -> Iterator[Tensor]:
        """The input tensor (1, …) of each image; images that cannot be read are skipped."""
        prepare = open_preparation(self.pipeline, model)
        for entry in self.entries:
            with contextlib.suppress(ImageError):
                yield prepare(entry.load().data).tensor


@dataclass(frozen=True)
class RewrittenModel:
    """A rewritten model on disk (or the user's own file), what changed in it, and how."""

    path: Path
    changed: tuple[str, ...]
    how: tuple[str, ...]


@dataclass(frozen=True)
class DeployedInference:
    """An `infer` stage: the named rewrites, in order, then the named runtime."""

    rewrites: tuple[str, ...] = ()
    runtime: str = "onnxruntime"
    calibration: Calibration | None = None
    folder: Path | None = None  # cache of rewritten models by content: each is built once for all processes
    providers: tuple[str, ...] = ()  # execution providers of ONNX Runtime by their full names; empty: the CPU

    def __call__(self, model: Model, threads: int = 0) -> Run:
        """The rewritten model opened on the runtime."""
        if not self.rewrites and not (model.card.feeds and self.runtime != "onnxruntime"):
            source = source_of(model)
        elif not self.rewrites:  # only ONNX Runtime is given more than the image
            source = rewritten(model, (), None).model.SerializeToString()
        elif self.folder is None:
            source = rewritten(model, self.rewrites, self.calibration).model.SerializeToString()
        else:
            source = str(self.built(model).path)
        if self.providers:
            return open_onnx(source, model, threads, self.providers)
        run: Run = part("runtime", self.runtime).function(source, model, threads)
        return run

    def built(self, model: Model) -> RewrittenModel:
        """The rewritten model on disk, built if it is missing; raise CannotRewrite if that is impossible."""
        if self.folder is None:
            raise InputError("expected a folder for rewritten models, got none")
        if not self.rewrites:
            return RewrittenModel(model.path, (), ())

        def make() -> Artifact:
            done = rewritten(model, self.rewrites, self.calibration)
            facts = {"changed": done.changed, "how": done.how}
            return Artifact({".onnx": done.model.SerializeToString()}, facts)

        key = self.key(model)
        paths, facts = cached_artifact(self.folder / key[:32], key, make)
        how = tuple(filter(None, facts["how"].split("; ")))
        return RewrittenModel(paths[".onnx"], tuple(facts["changed"]), how)

    def key(self, model: Model) -> str:
        """A hash of everything that can affect the rewritten model."""
        import onnx

        from holdfast.graph.session import runtime

        versions = [onnx.__version__, runtime().__version__]
        return fingerprint.of([model.sha256, model.card, self._recipe(), versions, code_of("rewrite")])

    @property
    def calibrated(self) -> bool:
        """Whether one of the rewrites uses calibration images."""
        return _calibrated(self.rewrites)

    def fingerprint(self) -> dict[str, Any]:
        """The values that identify cells, without the folder, which does not affect results."""
        on = part("runtime", self.runtime)
        chosen = {"made by": self._recipe(), "runtime": self.runtime, "on": on.function}
        if self.providers:
            chosen |= {"providers": self.providers, "builds": installed(sorted(set(BUILDS.values())))}
        return {**chosen, "versions": installed(on.facts.get("packages", ()))}

    def _recipe(self) -> dict[str, Any]:
        parts = [part("rewrite", name).function for name in self.rewrites]
        calibration = self.calibration.key() if self.calibration and self.calibrated else None
        return {"rewrites": self.rewrites, "parts": parts, "calibration": calibration}


def _calibrated(rewrites: Iterable[str]) -> bool:
    return any(part("rewrite", name).facts.get("calibrated", False) for name in rewrites)


def _content(entry: Entry) -> str:
    """The key of an image; unreadable images share one key, as they are not used for calibration."""
    try:
        return entry.key()
    except ImageError:
        return "unreadable"


def rewritten(model: Model, names: Iterable[str], calibration: Calibration | None) -> RewriteResult:
    """The model after the named rewrites in order, with the list of changes; the file is not modified."""
    import onnx

    names = tuple(names)
    if calibration is not None and calibration.lack and _calibrated(names):
        raise CannotRewrite(calibration.lack)
    graph: Any = onnx.load_from_string(model.read()) if model.path.suffix == ".gz" else onnx.load(model.path)
    fix_feeds(graph, model.card)
    batch = batch_of(graph.graph)
    tensors = (lambda: (batched(t, batch) for t in calibration.tensors(model))) if calibration else None
    context = RewriteContext(model.card, tensors, observed=calibration.observed if calibration else {})
    changed, how = list[str](), list[str]()
    for name in names:
        step: RewriteResult = part("rewrite", name).function(graph, context)
        graph = step.model
        changed += step.changed
        how += [step.how] if step.how else []
    return RewriteResult(graph, tuple(changed), "; ".join(how))


def deployed_of(infer: str | Infer) -> DeployedInference:
    """The stage as a DeployedInference; raise InputError for a user-defined function."""
    if isinstance(infer, DeployedInference):
        return infer
    if infer == "onnxruntime":
        return DeployedInference()
    raise InputError(f"the infer stage {infer!r} cannot be combined with rewrites of the graph")


def with_rewrite(infer: str | Infer, name: str) -> DeployedInference:
    """The stage with one more rewrite, in a valid order; it replaces another of the same family.

    A rewrite with the fact `combines` is added to others of its family.
    """
    deployed = deployed_of(infer)
    facts = {n: part("rewrite", n).facts for n in (*deployed.rewrites, name)}
    families = {n: own["family"] for n, own in facts.items()}
    together = {n for n, own in facts.items() if own.get("combines")}
    replaced = [n for n in deployed.rewrites if families[n] == families[name]]
    if together & {*replaced, name}:
        replaced = [n for n in replaced if n == name]
    chosen = [n for n in deployed.rewrites if n not in replaced]
    ordered = sorted([*chosen, name], key=lambda n: ORDER.get(families[n], 5))
    return dataclasses.replace(deployed, rewrites=tuple(ordered))


def with_runtime(infer: str | Infer, name: str) -> DeployedInference:
    """The stage on another runtime."""
    deployed = deployed_of(infer)
    providers = deployed.providers if name == "onnxruntime" else ()
    return dataclasses.replace(deployed, runtime=name, providers=providers)


def with_providers(infer: str | Infer, names: Sequence[str]) -> DeployedInference:
    """The stage on these execution providers of ONNX Runtime; raise InputError if one is missing."""
    return dataclasses.replace(deployed_of(infer), providers=providers_named(names))
