"""One file per step. A step that was released is not changed any more."""
