"""Compaction: history is shadowed by what stands for it, never deleted (semantics.md §5)."""
