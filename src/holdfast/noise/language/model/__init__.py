"""Language models in ONNX Runtime: text to tokens, tokens to likelihoods of endings."""

from holdfast.noise.language.model.model import LanguageModel
from holdfast.noise.language.model.open import find_language, open_language

__all__ = ["LanguageModel", "find_language", "open_language"]
