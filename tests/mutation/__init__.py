"""Program mutation: after a capture, one thing that the call can reach is changed; the entry misses, or agrees with eager.

    python -m tests.mutation --changes 5000 [--seed S]

subjects.py  programs, each in two worlds that share nothing: those of tests/python/programs, and generated ones
places.py    everything that can be reached from a call, each place by a path that leads there in both worlds
changes.py   what can be done to a place, and taken back; process.py: what can be done to the process
run.py       captures, changes, compares, takes back
known.py     classes of stale entries that wait for the rebuild of capture, with the smallest program of each
"""
