"""What all pages stand on: the folders, the audits that were started, the token of the forms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.web.form import Places
from holdfast.web.jobs import Desk


@dataclass(frozen=True)
class Site:
    """One server's state."""

    places: Places
    desk: Desk
    token: str

    def pictures(self) -> list[Path]:
        """The uploaded pictures."""
        return self._uploaded((".jpg", ".png"))

    def models(self) -> list[Path]:
        """The uploaded models."""
        return self._uploaded((".onnx",))

    def _uploaded(self, endings: tuple[str, ...]) -> list[Path]:
        """Our own files of that kind: a link somebody put there is none."""
        try:
            found = sorted(self.places.uploads.iterdir())
        except OSError:
            return []
        return [p for p in found if p.suffix in endings and p.is_file() and not p.is_symlink()]
