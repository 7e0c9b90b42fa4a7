"""What the node image is made of: the Dockerfile, its init, and a script that makes a base where none can be pulled."""
