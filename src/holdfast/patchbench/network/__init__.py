"""The benchmark of a patch at any position, after CCTSDB-YOLO: its graph, its specifications, its folder."""
