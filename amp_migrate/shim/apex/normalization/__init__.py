"""`apex.normalization`: layer norm and RMS norm, computed in float32 (https://nvidia.github.io/apex/layernorm.html)."""

from __future__ import annotations

from .fused_layer_norm import FusedLayerNorm, FusedRMSNorm, MixedFusedLayerNorm, MixedFusedRMSNorm

__all__ = ["FusedLayerNorm", "FusedRMSNorm", "MixedFusedLayerNorm", "MixedFusedRMSNorm"]
