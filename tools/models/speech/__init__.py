"""The two small speech models the package ships, trained on what espeak-ng speaks (needs torch)."""
