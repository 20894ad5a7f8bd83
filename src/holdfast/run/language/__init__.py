"""The noise suite of language models: precisions on sets of questions, stored piece by piece and resumed."""
