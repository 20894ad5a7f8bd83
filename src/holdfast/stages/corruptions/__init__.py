"""The 15 common corruptions of Hendrycks and Dietterich at 5 severities, as colour stages."""
