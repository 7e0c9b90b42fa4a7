"""The ports that node code runs on and their data: in production by the system, in simulation by one seed."""
