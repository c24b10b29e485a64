"""Where the runs of a sweep train: in this process, on a Ray cluster, by Slurm jobs.

What is shipped is a batch of runs that share a program, never a single run: compiling
costs more than a few runs do. A batch is trained by the same code everywhere, into the
same folders, so that any engine goes on with what another has begun.
"""
