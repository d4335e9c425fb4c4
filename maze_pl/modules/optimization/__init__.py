"""Steps of optimizers: the gradient step, its traced form, and optimizers over one flat tensor.

Nothing here knows which algorithm computes the loss.
"""
