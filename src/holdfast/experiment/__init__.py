"""An experiment: models × data × conditions from one TOML file."""
