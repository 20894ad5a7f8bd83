"""The noise suite of acoustic models: what precision and the spectrum's operators do to speech."""
