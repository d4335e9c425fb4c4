"""Configuration: names and files, YAML text, assembling, factories, what may be instantiated, messages.

What belongs here turns what a user writes into arguments; what is made of them belongs elsewhere.
"""
