"""The two small speech models the package ships, trained on speech that espeak-ng synthesises (needs torch)."""
