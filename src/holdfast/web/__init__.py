"""The local web page: results, running audits, a form that starts one. Served on loopback only."""

COMMANDS = {"Run": {"serve": "cli:serve"}}
