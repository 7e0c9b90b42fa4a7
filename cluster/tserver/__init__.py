"""The tablet server: hosts replicas of tablets, serves rows at leaseholders, reports to every master."""
