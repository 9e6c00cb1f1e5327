"""Scheduling: loop nests become fused kernels with loops ordered, parallel work marked and buffers placed. No torch."""

from lampwork.schedule.schedule import schedule

__all__ = ["schedule"]
