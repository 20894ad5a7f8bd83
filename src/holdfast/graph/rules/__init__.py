"""The rules by which a head is recognised from a graph's outputs: each looks, and proposes or passes."""

from __future__ import annotations

from holdfast.graph.rules.anchored import anchors_and_deltas, maps_with_anchors
from holdfast.graph.rules.dense import distribution_bins, fastest, one_tensor
from holdfast.graph.rules.finished import after_nms, selected_indices
from holdfast.graph.rules.proposal import Proposal, Rule
from holdfast.graph.rules.whole import class_maps, one_row, single_object

# In this order: the first that proposes is taken.
RULES: tuple[Rule, ...] = (
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
