"""Commands of `maze-pl`, one file each: their options, and their console output.

Training, evaluation and files themselves belong to the packages below; nothing imports a command.
"""
