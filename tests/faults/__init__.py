"""What goes wrong around a program: signals, forks, memory, disks, folders, threads. `python -m tests.faults`."""
