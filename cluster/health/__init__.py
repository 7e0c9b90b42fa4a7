"""The health of a whole cluster, in the way of Kudu's ksck: facts that its nodes tell, and what is wrong with them."""
