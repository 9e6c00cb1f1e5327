"""Scheduling: loop nests become fused kernels with loops ordered, parallel work marked and buffers placed. No torch."""

from lampwork.schedule.schedule import schedule
from lampwork.schedule.traffic import LaunchTraffic, kernel_traffic, traffic

__all__ = ["LaunchTraffic", "kernel_traffic", "schedule", "traffic"]
