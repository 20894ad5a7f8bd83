"""The rules by which a head is recognised from a graph's outputs: each looks, and proposes or passes."""

from __future__ import annotations

from holdfast.graph.rules.anchored import anchors_and_deltas, maps_with_anchors
from holdfast.graph.rules.dense import distribution_bins, fastest, one_tensor
from holdfast.graph.rules.finished import after_nms, selected_indices
from holdfast.graph.rules.proposal import Proposal, Rule
from holdfast.graph.rules.tensorflow import tensorflow
from holdfast.graph.rules.torchvision import torchvision
from holdfast.graph.rules.ultralytics import ultralytics
from holdfast.graph.rules.whole import class_maps, one_row, single_object

# In this order: the first that proposes is taken. What a file says of itself goes before names of outputs,
# these go before shapes.
RULES: tuple[Rule, ...] = (
    ultralytics,
    tensorflow,
    torchvision,
    selected_indices,
    after_nms,
    single_object,
    one_row,
    distribution_bins,
    one_tensor,
    anchors_and_deltas,
    fastest,
    maps_with_anchors,
    class_maps,
)

__all__ = ["RULES", "Proposal", "Rule"]
