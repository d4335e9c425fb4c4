"""Rollouts of environments in tensors, collected on their device; `TensorCollector` is the entry point."""
