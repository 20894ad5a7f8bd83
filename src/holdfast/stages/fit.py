"""Fits: how the picture is laid into the network's input; the reference does as the card says."""

from __future__ import annotations

import dataclasses

from holdfast.core.model import Input
from holdfast.core.registry import stage


@stage("fit")
def card(wanted: Input) -> Input:
    """The input as the card states it."""
    return wanted


@stage("fit", family="resize", systems="the SysNoise authors' code")
def square(wanted: Input) -> Input:
    """Stretched to short side × short side before the centre crop; other policies stay as they are."""
    return dataclasses.replace(wanted, policy="square") if wanted.policy == "crop" else wanted
