"""The APIs before `amp.initialize`: `amp.init`, `FP16_Optimizer`, `fp16_utils`."""
