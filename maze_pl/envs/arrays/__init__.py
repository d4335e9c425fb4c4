"""Environments whose episodes are kept in arrays and stepped together, without a loop over them.

The contract, random streams that equal NumPy's, and array forms of wrappers belong here. Simulations
of single episodes and the vector environments that loop over them do not.
"""

from .random_streams import RandomStreams as RandomStreams
