"""Steps of optimizers: the gradient step, its recorded form, and optimizers over one flat tensor.

Nothing here knows which algorithm computes the loss.
"""
