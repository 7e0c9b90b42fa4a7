"""The Docker environment: image, networks, containers, and their removal."""
