"""Runtimes: ONNX bytes or a file opened so that one tensor can be run.

A runtime is one registered function:

    @stage("runtime", needs="openvino", systems="…")
    def openvino(source: bytes | str, model: Model, threads: int) -> Run: ...

Facts: `packages` are the distributions whose versions can change its numbers, beyond those always noted.
`source` may differ from the model's own file (a rewrite of it); `model` is for its card and for messages.
"""
