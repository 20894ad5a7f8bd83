"""The problems of an entry in English and Chinese."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from holdfast.core.errors import InputError
from holdfast.core.text import printable as escaped

Lang = Literal["en", "zh"]
SHOWN = 10  # names of a list that are written out; the rest is counted
_LONGEST = 96
_FORMATS = (
    (b"PK\3\4", "zip"), (b"Rar!", "RAR"), (b"7z\xbc\xaf", "7-Zip"), (b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"), (b"\x89PNG", "PNG"), (b"\xff\xd8\xff", "JPEG"), (b"GIF8", "GIF"), (b"BM", "BMP"),
    (b"II*\0", "TIFF"), (b"MM\0*", "TIFF"), (b"RIFF", "WebP"), (b"\x93NUMPY", "NumPy"),
)  # fmt: skip

# kind -> (English, Chinese); {s} is the plural of {count}
TEXTS: Mapping[str, tuple[str, str]] = {
    # the submitted file
    "no-file": ("expected a zip file, found {found}", "应为 zip 文件，实际为{found_zh}"),
    "zip-name": (
        "expected the name advimages_TEAM.zip with a TEAM of 1 to 64 letters (any script), digits, - and _",
        "压缩包名称应为 advimages_队伍名.zip，队伍名由 1 至 64 个文字、数字、“-”或“_”组成",
    ),
    "zip-bytes": ("{got} bytes, limit {limit}", "{got} 字节，上限 {limit}"),
    "empty": ("the file is empty (0 bytes)", "文件为空（0 字节）"),
    "no-zip": ("not a zip file: {got}", "不是 zip 文件：{got}"),
    "zip-cut": (
        "the end of the zip is missing: it is truncated or followed by other data; pack or copy it again",
        "zip 缺少结尾：文件被截断，或其后附有其他数据；请重新打包或上传",
    ),
    "zip-behind": (
        "{got} bytes of other data after the end of the zip",
        "zip 结尾之后有 {got} 字节的其他数据",
    ),
    "zip-between": (
        "{got} bytes that do not belong to any file in the zip",
        "zip 中有 {got} 字节不属于任何文件",
    ),
    "zip-parts": ("part of a multi-part zip; expected a single file", "分卷 zip 的一部分；应为单个文件"),
    "zip64": (
        "uses zip64; expected a plain zip, as `holdfast contest pack` writes it",
        "zip64 格式；应为普通 zip（可用 `holdfast contest pack` 生成）",
    ),
    "zip-members": ("{count} file{s} in the zip, limit {limit}", "zip 内有 {count} 个文件，上限 {limit}"),
    "zip-none": ("the zip contains no files", "zip 内没有文件"),
    "zip-total": ("the files unpack to {got} bytes, limit {limit}", "解压后共 {got} 字节，上限 {limit}"),
    "list-place": (
        "the list of files in the zip is damaged: it ends at byte {got}, expected {limit}",
        "zip 的文件目录已损坏：结束于第 {got} 字节，应为 {limit}",
    ),
    "list-bytes": (
        "the list of files in the zip is damaged: {got} bytes for {count} file{s}",
        "zip 的文件目录已损坏：{count} 个文件占 {got} 字节",
    ),
    "list-damaged": ("the list of files in the zip is damaged: {got}", "zip 的文件目录已损坏：{got}"),
    # one file of the zip, before unpacking
    "overlap": ("overlaps {other}", "与 {other} 共用数据"),
    "encrypted": ("encrypted; expected a zip without a password", "已加密；zip 不得设置密码"),
    "method": (
        "compression method {got}; expected stored (0) or deflate (8)",
        "压缩方法为 {got}；应为存储（0）或 deflate（8）",
    ),
    "special": (
        "a symbolic link, device or other special file; expected a regular file",
        "符号链接、设备等特殊文件；应为普通文件",
    ),
    "path": (
        "an absolute path, or one with '..', '.', '//', ':' or a backslash; expected advimages/N.png",
        "绝对路径，或路径含“..”“.”“//”“:”或反斜杠；应为 advimages/N.png",
    ),
    "path-odd": (
        "a name with control characters, of unreadable bytes or longer than 255; expected advimages/N.png",
        "文件名含控制字符、无法识别的字节或超过 255 字节；应为 advimages/N.png",
    ),
    "path-two": ("has two different names", "带有两个不同的文件名"),
    "folder-data": ("a folder entry with data", "文件夹条目中含有数据"),
    "file-bytes": ("unpacks to {got} bytes, limit {limit}", "解压后为 {got} 字节，上限 {limit}"),
    "ratio": ("compression ratio {got}:1, limit {limit}:1", "压缩比为 {got}:1，上限 {limit}:1"),
    "local": ("its local header and the list of files in the zip differ", "文件头与 zip 目录不一致"),
    # one file of the zip, while unpacking
    "packed-longer": ("unpacks to more than the {got} bytes stated", "解压后超过所声明的 {got} 字节"),
    "packed-damaged": (
        "damaged: its data is truncated or does not match its checksum",
        "已损坏：数据被截断或与校验和不一致",
    ),
    # names
    "twice": ("{count} file{s} of this name", "同名文件有 {count} 个"),
    "alike": (
        "differs from {other} only in case or in how its characters are encoded",
        "与 {other} 仅大小写或字符编码形式不同",
    ),
    "folder": (
        "the folder in the zip: {got}, expected advimages/",
        "压缩包内的文件夹为 {got}，应为 advimages/",
    ),
    "folder-none": (
        "the images are at the top level of the zip, expected in advimages/",
        "图片位于压缩包根目录，应放在 advimages/ 内",
    ),
    "zeros": ("a number with leading zeros, expected {want}", "编号带前导零，应为 {want}"),
    "upper": ("an extension in upper case, expected {want}", "扩展名为大写，应为 {want}"),
    "extension": ("expected {want}", "应为 {want}"),
    "number": (
        "unexpected: {names} ({count} file{s}); expected numbers from 1 to {limit}",
        "多余文件：{names}（共 {count} 个）；编号应在 1 至 {limit} 之间",
    ),
    "missing": ("missing: {names} ({count} file{s})", "缺少：{names}（共 {count} 个文件）"),
    "nested": (
        "unexpected: {names} ({count} archive{s} inside the zip); expected the images themselves",
        "多余文件：{names}（zip 内含 {count} 个压缩包）；应直接包含图片",
    ),
    "junk": (
        "unexpected: {names} ({count} file{s} of macOS or Windows); `holdfast contest pack` skips them",
        "多余文件：{names}（macOS 或 Windows 自动生成的 {count} 个文件）；`holdfast contest pack` 会自动排除",
    ),
    "unexpected": (
        "unexpected: {names} ({count} file{s}); expected only the numbered images",
        "多余文件：{names}（共 {count} 个）；除编号图片外不得有其他文件",
    ),
    # images
    "png-other": (
        "not a PNG file: {got} (a new extension does not convert a file)",
        "不是 PNG 文件：{got}（仅改扩展名无效）",
    ),
    "png-size": (
        "{width}×{height}, expected {want_width}×{want_height}",
        "{width}×{height}，应为 {want_width}×{want_height}",
    ),
    "png-colour": ("{got}, expected RGB", "{got_zh}，应为 RGB"),
    "png-bits": ("{got} bits per channel, expected 8", "每通道 {got} 位，应为 8 位"),
    "png-header": ("a damaged PNG header", "PNG 文件头已损坏"),
    "png-cut": ("the PNG is truncated after {got} bytes", "PNG 在 {got} 字节处被截断"),
    "png-damaged": (
        "damaged: chunk {got} has a wrong name or checksum",
        "已损坏：数据块 {got} 的名称或校验和错误",
    ),
    "png-order": ("damaged: chunk {got} is in the wrong place", "已损坏：{got} 数据块位置错误"),
    "png-critical": ("an unknown critical chunk {got}", "含有未知的关键数据块 {got}"),
    "png-chunks": ("more than {limit} chunks in the PNG", "PNG 数据块超过 {limit} 个"),
    "png-extras": (
        "{got} bytes of text, colour profiles and other metadata, limit {limit}",
        "文本、色彩配置等附加数据 {got} 字节，上限 {limit}",
    ),
    "png-animated": ("an animated PNG, expected a single image", "动态 PNG，应为单幅图片"),
    "png-transparent": (
        "a transparent colour (tRNS); expected opaque RGB",
        "含透明色（tRNS）；应为不透明 RGB",
    ),
    "png-turned": (
        "its EXIF data rotates the image; save it upright without EXIF",
        "EXIF 信息要求旋转图片；请去除 EXIF 后保存",
    ),
    "png-behind": ("{got} bytes after the end of the PNG", "PNG 结尾之后有 {got} 字节"),
    "png-longer": (
        "its pixel data unpacks to more than the {got} bytes of the image",
        "像素数据解压后超过图片所需的 {got} 字节",
    ),
    "png-shorter": (
        "its pixel data ends after {got} of {want} bytes",
        "像素数据在 {want} 字节中的第 {got} 字节处结束",
    ),
    "png-data": ("its pixel data is damaged", "像素数据已损坏"),
    "pixels": ("{got} changed pixels, limit {limit}", "修改了 {got} 个像素，上限 {limit}"),
    # the entry as a whole
    "good": (
        "valid; {count} file{s}, changed pixels per image: maximum {largest}, mean {mean:.1f}",
        "有效；{count} 张图片，每张修改像素数最多 {largest}，平均 {mean:.1f}",
    ),
    "bad": ("not valid; {count} problem{s}", "无效；共 {count} 个问题"),
}


@dataclass(frozen=True)
class Problem:
    """A problem of an entry: its kind, the file in the zip (or the zip), and its values."""

    kind: str
    where: str = ""
    facts: Mapping[str, str | int | float] = field(default_factory=dict)
    lang: Lang = "en"

    def __str__(self) -> str:
        text = TEXTS[self.kind][self.lang == "zh"]
        message = text.format(**{"s": "" if self.facts.get("count") == 1 else "s", **self.facts})
        colon = "：" if self.lang == "zh" else ": "
        return f"{printable(self.where)}{colon}{message}" if self.where else message


class EntryError(InputError):
    """A rejected entry; the message states the first problem, `problems` has all of them."""

    def __init__(self, *problems: Problem, archive: str = "") -> None:
        before = f"{printable(archive)}: " if archive and archive != problems[0].where else ""
        super().__init__(before + str(problems[0]))
        self.problems = problems


def content_kind(head: bytes) -> str:
    """The format of a file by its first bytes, or these bytes."""
    return next((name for magic, name in _FORMATS if head.startswith(magic)), f"{head[:8]!r}"[1:])


def printable(name: str) -> str:
    """A name from an untrusted zip, safe to print: no control characters, limited length."""
    clean = escaped(name.replace("\n", "\\n").replace("\t", "\\t"))
    return clean if len(clean) <= _LONGEST else f"{clean[: _LONGEST - 20]}…{clean[-16:]}"


def listed(names: Iterable[str]) -> str:
    """The first names of a list with commas, … if there are more."""
    first = list(islice(names, SHOWN + 1))
    return ", ".join([*map(printable, first[:SHOWN]), *(["…"] if len(first) > SHOWN else [])])


def entry_text(name: str, images: int, size: str, pixels: int) -> str:
    """What participants hand in, in English and Chinese: folder, files and the name of the zip."""
    files = f"`advimages/1.png` … `advimages/{images}.png`"
    return (
        f"# {name}\n\n"
        f"Put {images} images into a folder `advimages`: {files}, PNG, {size}, 8-bit RGB, "
        f"at most {pixels} changed pixels each. Zip the folder as `advimages_TEAM.zip` (for "
        "example `advimages_aisafety.zip`), so that the zip contains `advimages/1.png`.\n\n"
        "    holdfast contest pack FOLDER --team TEAM --contest .\n"
        "    holdfast contest validate advimages_TEAM.zip --contest .\n\n"
        f"将 {images} 张图片放入名为 `advimages` 的文件夹：{files}（PNG，"
        f"{size}，8 位 RGB，每张修改的像素不多于 {pixels}），"
        "再将整个文件夹打包为 `advimages_队伍名.zip`（如 `advimages_aisafety.zip`）。\n"
    )
