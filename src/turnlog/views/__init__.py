"""Views: pure folds of a prefix of the log. The same prefix gives the same view, for ever."""
