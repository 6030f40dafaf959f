"""Measurements of a device itself: compute, bandwidth, launch overhead."""
