"""What several families share: the columns of histories, and compiled steps over them."""
