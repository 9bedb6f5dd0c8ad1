"""What reads or changes gradients: master params, fused clips, gradient penalties, Apex's stash."""
