"""The database adapters for environments: who the nodes are, how they are deployed, when they are ready."""
