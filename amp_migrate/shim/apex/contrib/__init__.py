"""`apex.contrib`: nothing of it is here. Importing a module of it raises ImportError with the module's name."""
