"""The attributes of a node: read, set, dropped."""

from __future__ import annotations

from typing import Any


def set_attribute(node: Any, name: str, value: Any) -> None:
    """Gives a node an attribute, in place of one of the same name."""
    from onnx import helper

    drop_attributes(node, name)
    node.attribute.append(helper.make_attribute(name, value))


def drop_attributes(node: Any, *names: str) -> None:
    """Takes attributes from a node."""
    for attribute in [a for a in node.attribute if a.name in names]:
        node.attribute.remove(attribute)
