"""Commands of `maze-pl`, one file each: what a command line asks for, and what the console says.

Training, evaluation and files themselves belong to the packages below; nothing imports a command.
"""
