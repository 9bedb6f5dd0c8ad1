"""The program as text: modules, scopes, names, who calls whom, and where values flow."""
