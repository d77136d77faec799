"""Client methods: what a client minimises and how it steps. One paper a file; the file's name is the method's."""
