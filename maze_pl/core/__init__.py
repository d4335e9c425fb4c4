"""Types and small tools that everything else is built from.

They include the data that environments, policies, data modules and algorithms exchange, such as
specifications, batches and entries of checkpoints. Environments, networks and algorithms themselves
do not belong here. Only `maze_pl.system` is imported.
"""
