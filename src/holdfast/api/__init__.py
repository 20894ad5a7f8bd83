"""The Python API behind `import holdfast`: functions that take models and datasets and return results."""
