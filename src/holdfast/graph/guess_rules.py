"""The order in which the rules of `graph.rules` are tried."""

from holdfast.graph.evidence import Rule
from holdfast.graph.rules.exporters import tensorflow, torchvision, ultralytics
from holdfast.graph.rules.finished import after_nms, mmdeploy, paddle, selected_indices
from holdfast.graph.rules.grids import (
    anchors_and_deltas,
    distribution_bins,
    fastest,
    heat_maps,
    levels_of_anchors,
)
from holdfast.graph.rules.images import class_maps, one_row, single_object
from holdfast.graph.rules.maps import maps_with_anchors
from holdfast.graph.rules.pairs import boxes_and_scores
from holdfast.graph.rules.tables import one_tensor, queries

# The first rule that makes a proposal wins: metadata takes precedence over names, these over shapes.
RULES: tuple[Rule, ...] = (
    *(ultralytics, tensorflow, torchvision, paddle),
    *(selected_indices, mmdeploy, after_nms, single_object, one_row, distribution_bins, one_tensor),
    *(anchors_and_deltas, boxes_and_scores, queries),
    *(fastest, heat_maps, levels_of_anchors, maps_with_anchors, class_maps),
)
