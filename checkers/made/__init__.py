"""Made histories: valid by construction at any size, or with anomalies of a given name in them."""
