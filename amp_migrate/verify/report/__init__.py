"""How an outcome is shown: one terminal screen, JSON, one HTML page."""
