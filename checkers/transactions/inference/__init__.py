"""What the accesses of each list or register say of the order of transactions (Kingsbury and Alvaro 2020)."""
