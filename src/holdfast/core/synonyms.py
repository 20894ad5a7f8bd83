"""Names of products and papers mapped to registered names, for hints in error messages."""

import difflib
from collections.abc import Collection

# Words, in lower case -> noise families, FAMILY=OPTION, or other names (readers, AP rules, commands).
_GROUPS: dict[str, tuple[str, ...]] = {
    # libraries that decode and resize
    "pil pillow pillow-simd": ("decode=pillow", "resize=pillow-bilinear"),
    "torchvision": ("decode=pillow", "resize=pillow-bilinear", "resize=torch-bilinear-antialias"),
    "cv2 opencv": ("decode=opencv", "resize=opencv-bilinear", "runtime=opencv-dnn"),
    "libjpeg": ("decode=ijg", "decode=float-dct"),
    "libjpeg-turbo": ("decode=opencv", "decode=pillow"),
    "turbojpeg": ("decode=opencv", "decode=no-fancy-upsampling"),
    "nvjpeg": ("decode=no-fancy-upsampling",),
    "dali": ("decode=dali",),
    "tensorflow tf": ("decode=tensorflow",),
    "ffmpeg": ("decode=ffmpeg", "resize=swscale-bicubic", "colour=nv12-swscale"),
    "pyav": ("decode=ffmpeg", "resize=swscale-bicubic"),
    "swscale": ("resize=swscale-bicubic", "resize=swscale-bilinear", "colour=nv12-swscale"),
    "gstreamer": ("decode=ffmpeg", "colour=nv12-swscale"),
    "torch pytorch": ("resize=torch-bilinear",),
    # interpolations
    "nearest": ("resize=opencv-nearest", "resize=pillow-nearest", "upsample=upsample-nearest"),
    "bilinear linear": ("resize=opencv-bilinear", "resize=pillow-bilinear", "upsample=upsample-bilinear"),
    "bicubic cubic": ("resize=opencv-bicubic", "resize=pillow-bicubic"),
    "lanczos": ("resize=opencv-lanczos", "resize=pillow-lanczos"),
    "area": ("resize=opencv-area",),
    "align-corners": ("upsample=upsample-bilinear-corners",),
    # colour
    "acl ascend dvpp yuv420": ("colour=nv12",),
    "nv12": ("colour=nv12", "colour=nv12-opencv", "colour=nv12-swscale"),
    "yuv": ("colour=yuv444", "colour=nv12"),
    "yuv444": ("colour=yuv444",),
    # precision and runtimes
    "int8 i8": ("precision=int8",),
    "fp16 float16 half": ("precision=fp16",),
    "bf16 bfloat16": ("precision=bf16",),
    "tensorrt trt": ("precision=int8-entropy", "precision=fp16"),
    "tflite": ("precision=int8-minmax", "upsample=upsample-bilinear-asymmetric"),
    "onnx ort onnxruntime": ("runtime=onnxruntime",),
    "openvino": ("runtime=openvino",),
    "ncnn": ("runtime=ncnn",),
    # stages
    "decoder decoding jpeg": ("decode",),
    "interpolation": ("resize", "upsample"),
    "resizing": ("resize",),
    "crop": ("resize=square",),
    "color color-mode colour-mode": ("colour",),
    "ceil-mode pooling maxpool": ("ceil",),
    "upsampling": ("upsample",),
    "quantization quantisation data-precision": ("precision",),
    "backend engine": ("runtime",),
    "post-processing post-process postprocessing": ("boxes",),
    "detection-proposal": ("boxes=offset",),
    "nms": ("boxes=nms-plus-one", "boxes=nms-inclusive"),
    # formats of datasets and AP rules
    "pascal pascal-voc pascalvoc voc2010 voc2012": ("voc",),
    "voc07": ("voc2007",),
    "mscoco ms-coco": ("coco",),
    "imagenet imagefolder": ("folder",),
    "ultralytics": ("yolo",),
    "darknet": ("yolo", "yolov3"),
    # commands
    "eval test": ("evaluate",),
    "benchmark": ("evaluate", "noise"),
    "sysnoise": ("noise",),
    "robustness": ("audit",),
    "prove": ("verify",),
    "web ui": ("serve",),
}
SYNONYMS = {word: targets for words, targets in _GROUPS.items() for word in words.split()}


def suggestions(name: str, known: Collection[str]) -> tuple[str, ...]:
    """Known names that `name` may refer to; a FAMILY=OPTION also if only families are known.

    They come from the table, then from names that contain `name` as a word: 'bilinear' in 'opencv-bilinear'.
    """
    family, sign, option = name.partition("=")
    if sign:
        options = [text.removeprefix(f"{family}=") for text in known if text.startswith(f"{family}=")]
        return tuple(f"{family}={text}" for text in suggestions(option, options))
    word = name.lower().replace("_", "-").replace(" ", "-")
    matches = [text for text in known if text.lower() == word]
    for target in () if matches else SYNONYMS.get(word, ()):
        kind, _, part = target.partition("=")
        if part and part in known:
            matches.append(part)
        elif kind in known or target in known:
            matches.append(target)
    if not matches:
        matches = [text for text in known if f"-{word}-" in f"-{text}-" and word != text]
    return tuple(dict.fromkeys(matches))


def did_you_mean(name: str, known: Collection[str], cutoff: float = 0.5) -> str:
    """A "Did you mean" question with synonyms, else with the most similar name; empty if none is similar."""
    names = [*suggestions(name, known)[:4]] or difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    if not names:
        return ""
    *first, last = map(repr, names)
    return f"Did you mean {', '.join(first)} or {last}?" if first else f"Did you mean {last}?"
