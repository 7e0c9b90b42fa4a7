"""`assay verify`: whether a database's plugin does what it says, tried on a cluster of its own before any run."""
