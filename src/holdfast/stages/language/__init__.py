"""Language models in ONNX Runtime: text to tokens, tokens to likelihoods of endings."""

from holdfast.stages.language.model import LanguageModel
from holdfast.stages.language.open import find_language, open_language

__all__ = ["LanguageModel", "find_language", "open_language"]
