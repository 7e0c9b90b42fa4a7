"""Histories of a catalog: tables that are made, renamed, altered and deleted under names."""
