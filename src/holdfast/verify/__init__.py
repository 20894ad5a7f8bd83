"""Verification: a proof that no input of a set violates a property, or a counterexample."""

GROUPS = {"vnncomp": "Run and score benchmarks of the neural-network verification competition."}
COMMANDS = {
    "Prove": {
        "verify": "cli:verify",
        "vnncomp run": "vnncomp.cli:run",
        "vnncomp score": "vnncomp.cli:score",
        "vnncomp instance": "vnncomp.cli:instance",
        "vnncomp warm": "vnncomp.cli:warm",
    }
}
