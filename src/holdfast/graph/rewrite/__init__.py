"""Rewrites of the user's ONNX graph: what an inference system does otherwise than the training one.

A rewrite is one registered function; adding one is one file here:

    @stage("rewrite", family="ceil", systems="…")
    def ceil(model: ModelProto, context: RewriteContext) -> RewriteResult: ...

It gets a copy it may change. A rewrite with nothing to change says so by an empty `changed` and gives back
the model as it came.
"""
