"""Programs with a native branch beside the Apex one: which of the two stays."""
