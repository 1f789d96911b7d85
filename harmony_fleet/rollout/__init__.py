"""Plan, write and follow changes of one deployment or of the whole fleet."""
