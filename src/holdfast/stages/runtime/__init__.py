"""Runtimes: ONNX bytes or a file opened so that one tensor can be run.

A runtime is one registered function:

    @stage("runtime", needs="openvino", systems="…")
    def openvino(source: bytes | str, model: Model, threads: int) -> Run: ...

Facts: `packages` are further distributions whose versions can affect its numbers.
`source` may differ from the model's own file (a rewrite of it); `model` is for its card and for messages.
"""
