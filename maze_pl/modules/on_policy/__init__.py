"""Learning from rollouts: the learning batch, its minibatches, and the credit that acts get.

Losses belong to the algorithms, pure maths to `maze_pl.functional`.
"""
