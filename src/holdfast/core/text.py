"""Text from files as data: control characters become escapes, so that none reaches a terminal or a page."""

import re
from typing import Any, TextIO

# Control characters but tab and newline, marks that change the direction of text, bytes that are no UTF-8.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""The text with control characters as escapes: `\x1b`, `\u202e`; a byte that is no UTF-8 as `\xbd`."""
    return _CONTROL.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    code = code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class PrintableStream:
    """An output stream that shows control characters as escapes."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write the text without control characters; return its length."""
        self.stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def terminal(stream: TextIO) -> TextIO:
    """The stream itself, for the control sequences of a progress line."""
    return stream.stream if isinstance(stream, PrintableStream) else stream
