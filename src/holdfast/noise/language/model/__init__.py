"""Language models in ONNX Runtime: text to tokens, tokens to likelihoods of endings."""

from holdfast.noise.language.model.open import find_language, open_language

__all__ = ["find_language", "open_language"]
