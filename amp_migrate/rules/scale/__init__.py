"""The loss and its scale: `scale_loss`, static and dynamic scales, bounds, reads of the scale."""
