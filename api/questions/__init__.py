"""The questions, one a file: a public function each, whose docstring is its page; nothing mathematical is here."""
