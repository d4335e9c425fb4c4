"""Configuration: from names, files and options to arguments, and messages about mistakes in them.

Objects that are made from these arguments belong to other packages.
"""
