"""Verification: proof that no input of a set breaks the network, or an input that does.

`holdfast.verify` is both this package and, called, its main function: importing a package sets the name on
its parent, whatever the parent says the name is.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.core.verdict import Verdict


class _Verify(ModuleType):
    """The package itself, callable."""

    def __call__(self, *args: Any, **named: Any) -> Verdict:
        """The verdict on a property: see `holdfast.verify.decide.verify`."""
        from holdfast.verify.decide import verify

        return verify(*args, **named)


sys.modules[__name__].__class__ = _Verify
