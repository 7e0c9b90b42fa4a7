"""What a run is worth: its faults, what clients felt of them, floors, invariants, and the verdict on all of it."""
