"""The heads: how the output tensors of a network are read. A head is one decorated function.

A head takes the output tensors by name and the card. It returns candidates in pixels of the network's input
(before NMS, unless its fact `nms` is False), the scores of a classifier, or the class map of a segmenter.
"""
