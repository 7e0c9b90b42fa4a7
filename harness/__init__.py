"""The ground: operations and histories, protocols, generators, the interpreter, runs, runtime ports, environments."""
