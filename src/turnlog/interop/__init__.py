"""Readers and writers of other tools' sessions."""
