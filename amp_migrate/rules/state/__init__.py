"""`amp.state_dict` and `amp.load_state_dict`, and the key of the scaler's state in a checkpoint."""
