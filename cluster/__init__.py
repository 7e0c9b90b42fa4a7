"""The reference database: pure cores, master, tablet server, client library and its `Database` adapters."""
