"""The local web page: runs, a running audit, a form that starts one. Served on the loopback address only."""
