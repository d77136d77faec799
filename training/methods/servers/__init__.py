"""Server methods: how a round's client rows become the next row. One paper a file; the file's name is the method's."""
