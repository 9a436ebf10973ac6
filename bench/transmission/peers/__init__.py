"""The same experiment over what others use: pickled MPI, multiprocessing's queue, ZeroMQ, Ray.

These let others pickle, because they measure what that costs. They run in processes of their own
and receive nothing but what these have sent each other. What is measured is imported within
functions only.
"""
