"""`amp.initialize`: the scaler in its place, what becomes of its results and of tests on amp."""
