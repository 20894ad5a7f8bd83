"""Specifications in VNN-LIB: read, printed, and turned into properties of a network."""

from holdfast.verify.vnnlib.read import parse_vnnlib, read_vnnlib
from holdfast.verify.vnnlib.spec import Disjunct, Spec, print_vnnlib, property_of

__all__ = ["Disjunct", "Spec", "parse_vnnlib", "print_vnnlib", "property_of", "read_vnnlib"]
