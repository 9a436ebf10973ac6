"""The machine: cores, memory, hosts, mpirun and Slurm."""
