"""The same experiment over what others use: pickled MPI, multiprocessing's queue, ZeroMQ, Ray.

These are the only modules of the package that let others pickle, because they measure what that
costs. They run in processes of their own and receive nothing but what these have sent each other;
no run of a configuration ever loads them. What is measured is imported within functions only.
"""
