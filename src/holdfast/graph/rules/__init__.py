"""Rules that recognise a head: by its exporter's metadata or names, then by shapes and operators."""
