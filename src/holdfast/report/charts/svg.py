"""Elements, scales, ticks and axes: what every chart is made of. All text is escaped here."""

import html
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

FONT = 12.0  # units of the drawing; the style gives narrow screens a larger one
WIDTH = 480.0  # of a chart that scales with its column
SERIES = 6  # colours (each with its own dash pattern) in the style: c1 … c6


@dataclass(frozen=True)
class Scale:
    """A line from values (low … high) to places in the drawing (start … end)."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value; a scale without extent puts everything at its start."""
        span = self.high - self.low
        share = (value - self.low) / span if span else 0.0
        return self.start + share * (self.end - self.start)


def element(tag: str, *children: str, **attributes: str | float | None) -> str:
    """One element; children are markup, attributes are escaped (`class_` is class, `_` elsewhere is -)."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-") if name != "viewBox" else name}="{_value(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    inside = "".join(children)
    return f"<{tag}{written}>{inside}</{tag}>" if inside or tag == "text" else f"<{tag}{written}/>"


def label(x: float, y: float, text: str, **attributes: str | float | None) -> str:
    """A text at a place."""
    return element("text", html.escape(text), x=x, y=y, **attributes)


def tip(text: str) -> str:
    """The tooltip, and accessible name, of the element around it."""
    return element("title", html.escape(text))


def drawing(
    width: float, height: float, title: str, desc: str, *children: str, fixed: bool = False, kind: str = ""
) -> str:
    """The whole chart with its accessible name and description; `fixed` ones do not scale, but scroll."""
    head = tip(title) + (element("desc", html.escape(desc)) if desc else "")
    sizes = {"width": width, "height": height} if fixed else {}
    box = f"0 0 {number(width)} {number(height)}"
    kinds = " ".join(filter(None, ["chart", "fixed" if fixed else "", kind]))
    return element("svg", head, *children, class_=kinds, viewBox=box, role="img", **sizes)


def number(value: float) -> str:
    """The number with at most two decimals, as short as it can be written."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def width_of(text: str, size: float = FONT) -> float:
    """About how wide a text is in the system's sans-serif."""
    return sum(size * (1.0 if unicodedata.east_asian_width(c) in "WF" else 0.56) for c in text)


def shortened(text: str, limit: int) -> str:
    """The text, cut to `limit` signs with … if it is longer."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round values from low to high, about `count` of them, in steps of 1, 2 or 5 times a power of ten."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def axes(
    x: Scale, y: Scale, x_label: str, y_label: str, *, y_ticks: Sequence[tuple[float, str]] | None = None
) -> str:
    """Grid, tick labels and axis names of a plot whose y scale runs upwards (start is its lower end)."""
    across = ticks(x.low, x.high)
    up = [(t, f"{t:g}") for t in ticks(y.low, y.high)] if y_ticks is None else y_ticks
    grid = [element("line", x1=x.start, x2=x.end, y1=y(t), y2=y(t), class_="grid") for t, _ in up] + [
        element("line", x1=x(t), x2=x(t), y1=y.start, y2=y.end, class_="grid") for t in across
    ]
    frame = element(
        "path", d=f"M{number(x.start)} {number(y.end)}V{number(y.start)}H{number(x.end)}", class_="axis"
    )
    numbers = [label(x.start - 8, y(t) + 4, text, class_="tick end") for t, text in up]
    numbers += [label(x(t), y.start + 18, f"{t:g}", class_="tick middle") for t in across]
    middle_x, middle_y = (x.start + x.end) / 2, (y.start + y.end) / 2
    names = [
        label(middle_x, y.start + 40, x_label, class_="name middle"),
        label(14, middle_y, y_label, class_="name middle", transform=f"rotate(-90 14 {number(middle_y)})"),
    ]
    return "".join([*grid, frame, *numbers, *names])


def empty(x: Scale, y: Scale) -> str:
    """The words in a plot that has nothing to show."""
    return label((x.start + x.end) / 2, (y.start + y.end) / 2, "nothing to show", class_="name middle")


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """A list of (class of the mark, name): a short line or a square in front of each name."""
    items = []
    for kind, name in entries:
        square = "area" in kind.split()
        mark = (
            element("rect", x=4, y=1, width=12, height=12, rx=2, class_=kind)
            if square
            else element("path", d="M0 7H26", class_=f"line {kind}")
        )
        sample = element(
            "svg", mark, viewBox="0 0 20 14" if square else "0 0 26 14", aria_hidden="true", class_="mark"
        )
        items.append(f"<li>{sample}<span>{html.escape(name)}</span></li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def _value(value: str | float) -> str:
    return html.escape(value) if isinstance(value, str) else number(value)
