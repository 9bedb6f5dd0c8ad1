"""Where Apex is set up, networks run, regions stand and weights are written."""
