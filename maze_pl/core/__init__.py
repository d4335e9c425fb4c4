"""Types that everything else is built from; imports nothing of the package but `maze_pl.system`."""
