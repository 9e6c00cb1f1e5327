"""Files that carry compiled programs to other processes and machines: `lampwork.save`, `package` and `load`."""
