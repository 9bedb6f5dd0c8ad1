"""How the scaler gets to the code that needs it: parameters, attributes, objects that carried amp."""
