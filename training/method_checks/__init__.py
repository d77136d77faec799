"""Whether a method is well-behaved: what ``fedscope check-method`` plays and measures, a file a subject."""
