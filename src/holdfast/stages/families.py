"""The families of system noise and their options; every registered part is an option.

A family is a stage of the paper's Table 1; an option is one way a deployed system does that stage. Options
are not listed anywhere: a decorated function (see core/registry) of one of these kinds is an option.

    decode, colour, resize, fit   a part of that kind exchanges the stage
    rewrite                       fact `family` is ceil, upsample or precision
    runtime, boxes                a part of that kind
    noise                         `Pipeline -> Pipeline`, fact `family`: your own

Facts of a part: `systems` (who does it), `alike` (class of products with the same output), `needs` (a module
that must be installed), `extra` (the extra that installs it, if not the first one in core/extras), `paper`
(in the paper's list), `tasks`, `default` (False: only with --all or by name), `on_request` (only by name or
family), `aliases` (alternative names), `hypothetical` (no product does it: measured and marked, but not in
the mean or worst of its family, in Combined, or named as the worst option), `targets` (the products of
core/targets that do it by default).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from holdfast.core.errors import InputError, UnknownName
from holdfast.core.extras import install_hint
from holdfast.core.model import Task
from holdfast.core.pipeline import Noise, Pipeline
from holdfast.core.registry import Part, names, part
from holdfast.core.synonyms import did_you_mean
from holdfast.core.targets import Target
from holdfast.stages.deployed import with_rewrite, with_runtime
from holdfast.stages.post import BoxPostProcessing

Where: TypeAlias = Literal[
    "pre-processing",
    "model inference",
    "post-processing",
    "pre- and post-processing",
    "the scene",
    "your own",
]
TASKS: tuple[Task, ...] = get_args(Task)
# facts that are copied to an option
_COPIED = (
    "systems",
    "alike",
    "paper",
    "tasks",
    "default",
    "on_request",
    "aliases",
    "calibrated",
    "hypothetical",
    "targets",
)


@dataclass(frozen=True)
class Family:
    """A kind of system noise: where it happens, and whether its effect depends on the input (Table 1).

    `effect` and `frequency` are that table's level of effect and frequency of occurrence; empty where it has
    no such column.
    """

    name: str
    title: str
    where: Where
    kinds: tuple[str, ...]
    tasks: tuple[Task, ...] = TASKS
    depends: bool = False
    effect: str = ""
    frequency: str = ""


FAMILIES: tuple[Family, ...] = (
    Family("decode", "Decode", "pre-processing", ("decode",), effect="high", frequency="very high"),
    Family(
        "resize", "Resize", "pre-processing", ("resize", "fit"), effect="very high", frequency="very high"
    ),
    Family(
        "colour",
        "Colour mode",
        "pre-processing",
        ("colour",),
        depends=True,
        effect="middle",
        frequency="high",
    ),
    Family("ceil", "Ceil mode", "model inference", ("rewrite",), effect="high", frequency="high"),
    # The paper applies it to detection and segmentation, but a classifier may enlarge maps, too.
    Family("upsample", "Upsample", "model inference", ("rewrite",), effect="very high", frequency="middle"),
    Family(
        "precision",
        "Precision",
        "model inference",
        ("rewrite",),
        depends=True,
        effect="high",
        frequency="high",
    ),
    Family("runtime", "Runtime", "model inference", ("runtime",)),
    Family(
        "boxes",
        "Post-processing",
        "post-processing",
        ("boxes",),
        ("detect", "single"),
        effect="middle",
        frequency="middle",
    ),
    Family("corruptions", "Common corruptions", "the scene", ("colour",), depends=True),
    Family("mistakes", "Common mistakes", "pre-processing", ("fit", "normalise", "colour", "resize")),
)


@dataclass(frozen=True)
class ReplaceStage:
    """A noise that replaces one part of the pipeline by name."""

    kind: str
    name: str

    def __call__(self, pipeline: Pipeline) -> Pipeline:
        """The pipeline with that part replaced; rewrites and box options are added to the existing ones."""
        if self.kind == "rewrite":
            return pipeline.replace(infer=with_rewrite(pipeline.infer, self.name))
        if self.kind == "runtime":
            return pipeline.replace(infer=with_runtime(pipeline.infer, self.name))
        if self.kind == "boxes":
            before = BoxPostProcessing() if pipeline.post == "card" else pipeline.post
            if not isinstance(before, BoxPostProcessing):
                raise InputError(f"post stage {before!r} cannot be combined with noise options of boxes")
            return pipeline.replace(post=part("boxes", self.name).function(before))
        return pipeline.replace(**{self.kind: self.name})


@dataclass(frozen=True)
class NoiseOption:
    """One way in which a deployed system differs from training, and its description."""

    family: str
    name: str
    noise: Noise
    summary: str = ""
    systems: str = ""
    alike: str = ""
    paper: bool = False
    tasks: tuple[Task, ...] = TASKS
    default: bool = True  # part of the suite by default
    on_request: bool = False  # measured only if its family or itself is named
    missing: str = ""  # why it cannot run here, with the install command
    aliases: tuple[str, ...] = ()
    calibrated: bool = False  # needs calibration images
    targets: tuple[Target, ...] = ()  # the products that do it by default
    hypothetical: bool = False  # no product does it: never the headline

    @property
    def label(self) -> str:
        """family=name, as the command line takes it."""
        return f"{self.family}={self.name}"

    @property
    def labels(self) -> tuple[str, ...]:
        """family=name of the option and of its aliases."""
        return (self.label, *(f"{self.family}={name}" for name in self.aliases))


def family(name: str) -> Family:
    """The family of that name, including your own; raise UnknownName with the nearest name."""
    by_name = {each.name: each for each in families()}
    if name not in by_name:
        raise UnknownName("noise family", name, by_name)
    return by_name[name]


def families() -> tuple[Family, ...]:
    """All families, the paper's first, then those of parts of kind `noise` that were loaded."""
    own = sorted({str(part("noise", n).facts.get("family", n)) for n in names("noise")})
    built_in = {f.name for f in FAMILIES}
    return (*FAMILIES, *(Family(n, n, "your own", ("noise",)) for n in own if n not in built_in))


def options(of: Family) -> tuple[NoiseOption, ...]:
    """All options of a family, installed or not, in the order of their names."""
    parts = [part(kind, name) for kind in dict.fromkeys((*of.kinds, "noise")) for name in names(kind)]
    return tuple(_option(registered, of) for registered in parts if _family_of(registered) == of.name)


def _family_of(registered: Part) -> str:
    own = {"rewrite": "", "noise": registered.name}.get(registered.kind, registered.kind)
    return str(registered.facts.get("family", own))


def option(label: str) -> NoiseOption:
    """The option `family=name`, by its name or an alias; raise an error with the nearest name."""
    if "=" not in label:
        labels = [text for family in families() for offered in options(family) for text in offered.labels]
        family_names = [family.name for family in families()]
        hint = "" if label in family_names else did_you_mean(label, [*labels, *family_names])
        problem = f"expected FAMILY=OPTION such as 'resize=opencv-bilinear', got {label!r}"
        raise InputError(f"{problem}. {hint}".strip())
    chosen, name = label.split("=", 1)
    offered = options(family(chosen))
    matches = [o for o in offered if o.name == name] or [o for o in offered if name in o.aliases]
    if matches:
        return matches[0]
    raise UnknownName(chosen, name, [o.name for o in offered])


def alias_notes(words: Iterable[str]) -> tuple[str, ...]:
    """One line per FAMILY=OPTION that is an alias: the option it refers to, and similar ones."""
    notes = []
    for word in dict.fromkeys(words):
        resolved = option(word) if "=" in word else None
        if resolved is not None and resolved.label != word:
            start, offered = word.split("=", 1)[1] + "-", options(family(resolved.family))
            others = ", ".join(o.name for o in offered if o.name.startswith(start) and o != resolved)
            notes.append(f"{word} means {resolved.label} ({resolved.systems}); also {others}")
    return tuple(notes)


def options_of(text: str) -> tuple[NoiseOption, ...]:
    """The options of 'decode=ffmpeg,resize=opencv-bilinear'; raise InputError if one cannot run here."""
    chosen = tuple(option(word.strip()) for word in text.split(",") if word.strip())
    for each in chosen:
        if each.missing:
            raise InputError(f"{each.label}: {each.missing}")
    return chosen


def applied(pipeline: Pipeline, chosen: Iterable[NoiseOption]) -> Pipeline:
    """The pipeline after applying the options in order."""
    for each in chosen:
        pipeline = each.noise(pipeline)
    return pipeline


def _option(registered: Part, of: Family) -> NoiseOption:
    kind, name, facts = registered.kind, registered.name, registered.facts
    hint = install_hint(facts["needs"], facts.get("extra", "")) if "needs" in facts else ""
    noise: Noise = registered.function if kind == "noise" else ReplaceStage(kind, name)
    facts_of = {"tasks": of.tasks, **{key: facts[key] for key in _COPIED if key in facts}}
    return NoiseOption(of.name, name, noise, registered.summary, missing=hint, **facts_of)
