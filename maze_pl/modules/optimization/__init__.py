"""Steps of optimisers: the gradient step, its traced form, and optimisers over one flat tensor.

Nothing here knows which algorithm computes the loss.
"""
