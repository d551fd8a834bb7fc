"""Anomaly detection under the module that older programs import it from."""

from .modes import detect_anomaly, set_detect_anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]
