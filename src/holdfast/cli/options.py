"""The options of the commands of the shell: data, model, report, store and doctor."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from holdfast.config import completions
from holdfast.config.options import Argument, Option, Options
from holdfast.evaluate.options import CardOptions, DataArgument, FormatOptions, MapOptions, ReadingOptions

JsonOption = Annotated[Path | None, Option("Also write the result to this JSON file.")]
ModelPath = Annotated[
    str, Argument("An ONNX file or the name of a shipped model.", completions=completions.models)
]


@dataclass(frozen=True, kw_only=True)
class DataInfoOptions(
    FormatOptions,
    command="data info",
    examples=(
        "holdfast data info signs:0:20",
        "holdfast data make signs scenes --images 4 && holdfast data info scenes --json scenes.json",
    ),
):
    """The options of `holdfast data info`."""

    path: Annotated[
        str, Argument("A folder or file in any known format, or 'signs'.", completions=completions.datasets)
    ]
    json: JsonOption = None


@dataclass(frozen=True, kw_only=True)
class DataMakeOptions(
    Options,
    command="data make",
    examples=(
        "holdfast data make signs scenes --images 10",
        "holdfast data make signs other-scenes --images 10 --seed 7",
    ),
):
    """The options of `holdfast data make`."""

    what: Annotated[
        str, Argument("'signs': procedural road scenes with traffic signs.", completions=lambda: ["signs"])
    ]
    folder: Annotated[Path, Argument("A new or empty folder.")]
    images: Annotated[int, Option("Number of scenes.", least=1, most=10_000_000)] = 1000
    seed: Annotated[int, Option("Random seed.", least=0)] = 0


@dataclass(frozen=True, kw_only=True)
class CropOptions(
    ReadingOptions,
    command="data crop",
    examples=(
        "holdfast data crop signs:0:10 crops",
        "holdfast data crop signs:0:10 wide-crops --size 96 --margin 0.5",
    ),
):
    """The options of `holdfast data crop`."""

    data: Annotated[
        str,
        Argument(
            "A detection dataset: folder or file in any known format, or 'signs'.",
            completions=completions.datasets,
        ),
    ]
    out: Annotated[Path, Argument("A new or empty folder.")]
    size: Annotated[int, Option("Side of the crops in pixels.", least=8, most=4096)] = 64
    margin: Annotated[
        float, Option("Margin around a target on each side, relative to its longer side.", least=0, most=10)
    ] = 0.2
    shift: Annotated[
        float, Option("Random shift off the centre: 0 = none, 1 = up to the border.", least=0, most=1)
    ] = 0.5
    least: Annotated[float, Option("Skip targets whose shorter side is below this many pixels.", least=1)] = (
        8.0
    )
    crowded: Annotated[bool, Option("Keep crops that contain parts of other targets.")] = False
    seed: Annotated[int, Option("Random seed of the shifts.", least=0)] = 0


@dataclass(frozen=True, kw_only=True)
class ModelInfoOptions(
    CardOptions,
    command="model info",
    examples=("holdfast model info signs-yolo", "holdfast model info signs-single --json model.json"),
):
    """The options of `holdfast model info`."""

    path: ModelPath
    json: JsonOption = None


@dataclass(frozen=True, kw_only=True)
class ModelCardOptions(
    Options,
    command="model card",
    examples=(
        "holdfast model card signs-yolo -o guessed.toml",
        "holdfast model card signs-class -o guessed-class.toml",
    ),
):
    """The options of `holdfast model card`."""

    path: ModelPath
    force: Annotated[bool, Option("Overwrite an existing card.")] = False
    out: Annotated[Path | None, Option("File to write (default: next to the model).", short="-o")] = None


@dataclass(frozen=True, kw_only=True)
class ModelCheckOptions(
    CardOptions,
    FormatOptions,
    MapOptions,
    command="model check",
    examples=(
        "holdfast model check signs-yolo signs:0:20",
        "holdfast model check signs-yolo signs:0:20 --images 4 --json check.json",
    ),
):
    """The options of `holdfast model check`."""

    path: ModelPath
    data: DataArgument
    images: Annotated[int, Option("Labelled images to try.", least=1, most=1000)] = 16
    json: JsonOption = None


@dataclass(frozen=True, kw_only=True)
class ModelListOptions(
    Options,
    command="model list",
    examples=("holdfast model list", "holdfast model list && holdfast model info signs-yolo"),
):
    """The options of `holdfast model list`."""


@dataclass(frozen=True, kw_only=True)
class ModelConvertOptions(
    Options,
    command="model convert",
    examples=(
        "holdfast model convert yolov3-tiny.cfg yolov3-tiny.weights -o yolov3-tiny.onnx",
        "holdfast model convert yolov3-tiny.cfg yolov3-tiny.weights --size 320 -o yolov3-tiny-320.onnx",
    ),
):
    """The options of `holdfast model convert`."""

    cfg: Annotated[Path, Argument("A darknet .cfg file.")]
    weights: Annotated[Path, Argument("Its .weights file.")]
    names: Annotated[Path | None, Option("A file with one class name per line.")] = None
    size: Annotated[int | None, Option("Input width and height (default: as in the .cfg).", least=32)] = None
    force: Annotated[bool, Option("Overwrite an existing card.")] = False
    out: Annotated[Path, Option("ONNX file to write; the card is written next to it.", short="-o")]


@dataclass(frozen=True, kw_only=True)
class ReportOptions(
    Options,
    command="report",
    examples=(
        "holdfast evaluate signs-yolo signs:0:20 && holdfast report holdfast-runs/signs-yolo-on-signs-0-20",
        (
            "holdfast evaluate signs-class signs:0:40 && "
            "holdfast report holdfast-runs/signs-class-on-signs-0-40 -o classes.html"
        ),
    ),
):
    """The options of `holdfast report`."""

    run: Annotated[Path, Argument("Run: its folder or manifest (run.json).")]
    out: Annotated[Path, Option("Page to write.", short="-o")] = Path("report.html")


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(Options, command="doctor", examples=("holdfast doctor", "holdfast doctor > doctor.txt")):
    """The options of `holdfast doctor`."""


@dataclass(frozen=True, kw_only=True)
class StoreOptions(Options):
    """The store of a `holdfast store` command."""

    url: Annotated[
        str, Argument("Store: a folder such as holdfast-runs/cells, or a URL (s3://…, gs://…, az://…).")
    ]


@dataclass(frozen=True, kw_only=True)
class StoreInfoOptions(
    StoreOptions,
    command="store info",
    examples=(
        "holdfast evaluate signs-yolo signs:0:20 && holdfast store info holdfast-runs/cells",
        "holdfast store info holdfast-runs/cells --json cells.json",
    ),
):
    """The options of `holdfast store info`."""

    json: Annotated[Path | None, Option("Also write the table to this JSON file.")] = None


@dataclass(frozen=True, kw_only=True)
class StoreVerifyOptions(
    StoreOptions,
    command="store verify",
    examples=(
        "holdfast evaluate signs-yolo signs:0:20 && holdfast store verify holdfast-runs/cells",
        "holdfast store verify holdfast-runs/cells --delete",
    ),
):
    """The options of `holdfast store verify`."""

    delete: Annotated[bool, Option("Delete damaged cells; the next run computes them again.")] = False


@dataclass(frozen=True, kw_only=True)
class StorePruneOptions(
    StoreOptions,
    command="store prune",
    examples=(
        (
            "holdfast evaluate signs-yolo signs:0:20 && "
            "holdfast store prune holdfast-runs/cells --runs holdfast-runs"
        ),
        "holdfast store prune holdfast-runs/cells --runs holdfast-runs --older-than 30 --delete",
    ),
):
    """The options of `holdfast store prune`."""

    runs: Annotated[
        tuple[Path, ...], Option("Folder of runs whose cells are kept. May be repeated.", metavar="FOLDER")
    ]
    older_than: Annotated[
        float, Option("Keep cells younger than this many days.", metavar="DAYS", least=0)
    ] = 1.0
    delete: Annotated[bool, Option("Delete the entries instead of listing them.")] = False
