"""When work is done: the clock, deadlines, periodic jobs, and long work in parts."""
